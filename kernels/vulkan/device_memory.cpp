#include "kernels/vulkan/device_memory.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "kernels/vulkan/commands.h"
#include "kernels/vulkan/queue.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

constexpr std::size_t kAlignment = 256;                     // bytes
constexpr std::size_t kBlockBytes = std::size_t{64} << 20;  // that small pieces share
constexpr std::size_t kLaneBytes = std::size_t{4} << 20;    // of a piece on its way to the device
constexpr std::size_t kNumLanes = 16;                       // pieces on their way at once, or being written

std::size_t aligned(std::size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

/// Memory of the device that counts for a use, or no longer counts for it, while this lives.
class DeviceMemory::CountedBytes {
 public:
  CountedBytes(MemoryUse use, int64_t size) : use_(use), size_(size) { count_device_bytes(use_, size_); }
  ~CountedBytes() { count_device_bytes(use_, -size_); }
  CountedBytes(const CountedBytes&) = delete;
  CountedBytes& operator=(const CountedBytes&) = delete;

 private:
  const MemoryUse use_;
  const int64_t size_;
};

/// A buffer of zeros, known to its memory while it lives.
class DeviceMemory::Block {
 public:
  Block(DeviceMemory& memory, std::size_t size, MemoryUse use)
      : memory_(memory),
        buffer_(memory.device_, size, BufferUse::kDevice),
        counted_(use, static_cast<int64_t>(buffer_.size())) {
    const std::lock_guard lock(memory.mutex_);
    memory.blocks_[buffer_.address()] = this;
  }
  ~Block() {
    const std::lock_guard lock(memory_.mutex_);
    memory_.blocks_.erase(buffer_.address());
  }

  const Buffer& buffer() const { return buffer_; }

 private:
  DeviceMemory& memory_;
  Buffer buffer_;
  const CountedBytes counted_;
};

/// One of the ways to the device: room that the host writes, and commands that copy from there.
class DeviceMemory::Lane {
 public:
  explicit Lane(Device& device) : device_(device), commands_(device), room_(device, kLaneBytes, BufferUse::kUpload) {}

  void fill(BufferPlace to, std::size_t size, const std::function<void(std::byte*)>& write) {
    if (room_.size() < size) room_ = Buffer(device_, size, BufferUse::kUpload);
    write(room_.host());
    const VkBufferCopy copy{.dstOffset = to.offset, .size = size};
    commands_.begin();
    device_.vk().CmdCopyBuffer(commands_.handle(), room_.handle(), to.buffer, 1, &copy);
    run();
  }
  /// `extent` in whole words of 4 bytes.
  void clear(const Buffer& buffer, Extent extent) {
    commands_.begin();
    device_.vk().CmdFillBuffer(commands_.handle(), buffer.handle(), extent.begin, extent.size(), 0);
    run();
  }

  bool is_taken = false;

 private:
  /// What is recorded, with all that comes later behind it.
  void run() {
    commands_.barrier();
    commands_.end();
    device_.queue().wait(device_.queue().submit(commands_.handle()));
  }

  Device& device_;
  Commands commands_;
  Buffer room_;
};

/// A block that small pieces are cut from. Guarded by shared_mutex_, but for the block.
class DeviceMemory::SharedBlock {
 public:
  explicit SharedBlock(std::shared_ptr<Block> block) : block_(std::move(block)), free_(block_->buffer().size()) {}

  const Buffer& buffer() const { return block_->buffer(); }
  bool is_empty() const { return free_.used_bytes() == 0; }
  std::optional<FreeExtents::Taken> take(std::size_t size) { return free_.take(size); }
  void give_back(FreeExtents::Taken place) noexcept { free_.give_back(std::move(place)); }
  /// What may have been written of `extent`, which was taken; from now on all of it may be.
  Extent mark_written(Extent extent) {
    const Extent written{extent.begin, std::clamp(written_bytes_, extent.begin, extent.end)};
    written_bytes_ = std::max(written_bytes_, extent.end);
    return written;
  }

 private:
  std::shared_ptr<Block> block_;
  FreeExtents free_;
  std::size_t written_bytes_ = 0;  // behind these are zeros
};

/// What is cut from a block.
struct DeviceMemory::Cut {
  SharedBlock* block;
  FreeExtents::Taken place;
  Extent written;  // of it, by somebody before
};

/// A small one, in use.
struct DeviceMemory::Piece {
  Piece(DeviceMemory& owner, std::size_t size)
      : memory(owner),
        cut(owner.cut(size)),
        counted(current_memory_use(), static_cast<int64_t>(size)),
        left(MemoryUse::kBuffers, -static_cast<int64_t>(size)) {}
  ~Piece() { memory.give_back(cut); }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  DeviceMemory& memory;
  Cut cut;
  const CountedBytes counted;
  const CountedBytes left;  // of the block, which counts whole
};

DeviceMemory::DeviceMemory(Device& device) : device_(device) {}
DeviceMemory::~DeviceMemory() = default;

std::shared_ptr<DeviceMemory::Block> DeviceMemory::make_block(std::size_t size, MemoryUse use) {
  auto block = std::make_shared<Block>(*this, size, use);
  take_lane()->clear(block->buffer(), {0, block->buffer().size()});
  return block;
}

Storage DeviceMemory::allocate(std::size_t size) {
  const std::size_t room = std::max(aligned(size), kAlignment);
  if (room > kBlockBytes / 4) {
    auto block = make_block(room, current_memory_use());
    auto* data = reinterpret_cast<std::byte*>(block->buffer().address());
    return {data, size, Space::kDevice, std::move(block)};
  }
  auto piece = std::make_shared<Piece>(*this, room);
  const Buffer& buffer = piece->cut.block->buffer();
  if (piece->cut.written.size() > 0) take_lane()->clear(buffer, piece->cut.written);
  auto* data = reinterpret_cast<std::byte*>(buffer.address() + piece->cut.place.extent().begin);
  return {data, size, Space::kDevice, std::move(piece)};
}

DeviceMemory::Cut DeviceMemory::cut(std::size_t size) {
  const auto cut_from = [&](SharedBlock& block) -> std::optional<Cut> {
    std::optional<FreeExtents::Taken> place = block.take(size);
    if (!place) return std::nullopt;
    const Extent written = block.mark_written(place->extent());
    return Cut{&block, std::move(*place), written};
  };
  const std::lock_guard lock(shared_mutex_);  // while a block is made, too: threads that find all full wait for one new one
  for (const auto& block : shared_) {
    if (std::optional<Cut> cut = cut_from(*block)) return std::move(*cut);
  }
  return std::move(
      *cut_from(*shared_.emplace_back(std::make_unique<SharedBlock>(make_block(kBlockBytes, MemoryUse::kBuffers)))));
}

void DeviceMemory::give_back(Cut& cut) noexcept {
  const std::lock_guard lock(shared_mutex_);
  cut.block->give_back(std::move(cut.place));
  if (!cut.block->is_empty() || shared_.size() == 1) return;
  std::erase_if(shared_, [&](const auto& block) { return block.get() == cut.block; });
}

void DeviceMemory::fill(Address<std::byte> to, std::span<const std::byte> from) {
  for (std::size_t first = 0; first < from.size(); first += kLaneBytes) {
    const std::span<const std::byte> piece = from.subspan(first, std::min(kLaneBytes, from.size() - first));
    fill(to + static_cast<int64_t>(first), piece.size(),
         [&](std::byte* room) { std::memcpy(room, piece.data(), piece.size()); });
  }
}

void DeviceMemory::fill(Address<std::byte> to, std::size_t size, const std::function<void(std::byte*)>& write) {
  const BufferPlace place = place_of(reinterpret_cast<uint64_t>(to.raw()));
  take_lane()->fill(place, size, write);
}

BufferPlace DeviceMemory::place_of(uint64_t address) {
  const std::lock_guard lock(mutex_);
  auto behind = blocks_.upper_bound(address);
  FERRY_CHECK(behind != blocks_.begin()) << "no block has the address";
  const Buffer& buffer = std::prev(behind)->second->buffer();
  FERRY_CHECK_LT(address - buffer.address(), buffer.size());
  return {buffer.handle(), address - buffer.address()};
}

DeviceMemory::TakenLane DeviceMemory::take_lane() {
  std::unique_lock lock(lanes_mutex_);
  while (true) {
    for (const auto& lane : lanes_) {
      if (!std::exchange(lane->is_taken, true)) return TakenLane(lane.get(), {this});
    }
    if (lanes_.size() < kNumLanes) {
      lanes_.push_back(std::make_unique<Lane>(device_));
    } else {
      lane_is_free_.wait(lock);
    }
  }
}

void DeviceMemory::GiveBack::operator()(Lane* lane) const {
  {
    const std::lock_guard lock(memory->lanes_mutex_);
    lane->is_taken = false;
  }
  memory->lane_is_free_.notify_one();
}

}  // namespace ferry::vulkan
