#include "runtime/server/http2/header_bound.h"

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

// Types and flags of frames (RFC 9113, section 6).
constexpr uint8_t kHeaders = 0x1, kPushPromise = 0x5, kContinuation = 0x9;
constexpr uint8_t kEndHeaders = 0x4;

/// Takes up to `most` bytes from the front.
std::span<const uint8_t> take_front(std::span<const uint8_t>& bytes, std::size_t most) {
  const std::span<const uint8_t> front = bytes.first(std::min(most, bytes.size()));
  bytes = bytes.subspan(front.size());
  return front;
}

}  // namespace

bool HeaderBound::take(std::span<const uint8_t> bytes) {
  if (!take_preface(bytes)) return false;
  while (!bytes.empty()) {
    payload_left_ -= take_front(bytes, payload_left_).size();
    if (!take_frame_header(bytes)) return false;
  }
  return true;
}

bool HeaderBound::take_preface(std::span<const uint8_t>& bytes) {
  const std::string_view expected = kPreface.substr(num_preface_bytes_);
  const std::span<const uint8_t> front = take_front(bytes, expected.size());
  num_preface_bytes_ += front.size();
  return std::ranges::equal(front, expected.substr(0, front.size()),
                            [](uint8_t byte, char letter) { return byte == static_cast<uint8_t>(letter); });
}

bool HeaderBound::take_frame_header(std::span<const uint8_t>& bytes) {
  const std::span<const uint8_t> front = take_front(bytes, kFrameHeaderBytes - num_frame_header_bytes_);
  std::ranges::copy(front, frame_header_.begin() + static_cast<std::ptrdiff_t>(num_frame_header_bytes_));
  num_frame_header_bytes_ += front.size();
  return num_frame_header_bytes_ < kFrameHeaderBytes || begin_frame();
}

bool HeaderBound::begin_frame() {
  num_frame_header_bytes_ = 0;
  payload_left_ = std::size_t{frame_header_[0]} << 16 | std::size_t{frame_header_[1]} << 8 | frame_header_[2];
  const uint8_t type = frame_header_[3], flags = frame_header_[4];
  if (type != kHeaders && type != kPushPromise && type != kContinuation) return true;
  block_bytes_ += static_cast<int64_t>(kFrameHeaderBytes + payload_left_);
  if (block_bytes_ > max_block_bytes_) return false;
  if ((flags & kEndHeaders) != 0) block_bytes_ = 0;
  return true;
}

}  // namespace ferry
