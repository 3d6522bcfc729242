#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ferry {

/// Watches what an HTTP/2 client sends and finds a block of headers that is too long.
///
/// A block is a HEADERS or PUSH_PROMISE frame and the CONTINUATION frames after it (RFC 9113, section 4.3). It ends with the
/// flag END_HEADERS, so a client that never sets the flag sends a block without an end. The bound is of the bytes on the wire,
/// compressed as they are. The nine bytes before each frame count as well, because frames may be empty.
class HeaderBound {
 public:
  /// A client sends this before its first frame.
  static constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

  explicit HeaderBound(int64_t max_block_bytes) : max_block_bytes_(max_block_bytes) {}

  /// Takes the next bytes of the connection, which may end anywhere. Returns false if the client does not speak HTTP/2, or if a
  /// frame among these bytes makes its block too long. Nothing of the connection may go on from there.
  bool take(std::span<const uint8_t> bytes);

  /// Returns whether the whole preface has come.
  bool has_begun() const { return num_preface_bytes_ == kPreface.size(); }

 private:
  static constexpr std::size_t kFrameHeaderBytes = 9;

  bool take_preface(std::span<const uint8_t>& bytes);
  bool take_frame_header(std::span<const uint8_t>& bytes);
  bool begin_frame();

  const int64_t max_block_bytes_;
  std::size_t num_preface_bytes_ = 0;
  std::array<uint8_t, kFrameHeaderBytes> frame_header_{};
  std::size_t num_frame_header_bytes_ = 0;
  std::size_t payload_left_ = 0;  // bytes of the frame that are yet to come
  int64_t block_bytes_ = 0;       // of the block that has not ended
};

}  // namespace ferry
