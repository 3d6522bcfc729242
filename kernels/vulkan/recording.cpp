#include "kernels/vulkan/recording.h"

#include <algorithm>

namespace ferry::vulkan {
namespace {

constexpr std::size_t kPieceAlignment = 16;                // bytes
constexpr std::size_t kChunkBytes = std::size_t{1} << 20;  // at least, of a new buffer

}  // namespace

Arena::Piece Arena::take(std::size_t size) {
  const std::size_t room = (size + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
  while (chunk_ < chunks_.size() && used_ + room > chunks_[chunk_].size()) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size())
    chunks_.emplace_back(device_, std::max(room, kChunkBytes << std::min<std::size_t>(chunk_, 6)), use_);
  const Buffer& chunk = chunks_[chunk_];
  const Piece piece{chunk.host() + used_, chunk.address() + used_, chunk.handle(), used_};
  used_ += room;
  return piece;
}

void Arena::reset() { chunk_ = used_ = 0; }

}  // namespace ferry::vulkan
