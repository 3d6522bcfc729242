#include "kernels/vulkan/vulkan_stream.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "kernels/backend.h"
#include "kernels/vulkan/queue.h"
#include "profiler/span.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

Range range_of(uint64_t address, std::size_t size) { return {address, address + size}; }

template <class T>
uint64_t value_of(Address<T> address) {
  return reinterpret_cast<uint64_t>(address.raw());
}

}  // namespace

VulkanStream::VulkanStream(const Backend& backend, ThreadPool& pool)
    : Stream(backend, pool),
      device_(static_cast<DeviceMemory&>(backend.memory()).device()),
      memory_(static_cast<DeviceMemory&>(backend.memory())),
      trace_(device_) {}

VulkanStream::~VulkanStream() { device_.vk().DeviceWaitIdle(device_.handle()); }

void VulkanStream::copy(Address<const std::byte> from, Address<std::byte> to, std::size_t size) {
  if (size == 0) return;
  if (from.space() == Space::kHost && to.space() == Space::kHost) return Stream::copy(from, to, size);
  if (is_rehearsing_) return;
  Command command{.size = size, .is_of_host = from.space() == Space::kHost || to.space() == Space::kHost};
  if (from.space() == Space::kHost) {
    const Arena::Piece piece = recording().uploads.take(size);
    std::memcpy(piece.host, from.host(), size);
    command.from = {piece.buffer, piece.offset};
  } else {
    command.from = memory_.place_of(value_of(from));
    reads(range_of(value_of(from), size));
  }
  if (to.space() == Space::kHost) {
    const Arena::Piece piece = recording().downloads.take(size);
    command.to = {piece.buffer, piece.offset};
    recording().pending.push_back({piece.host, to.host(), size});
  } else {
    command.to = memory_.place_of(value_of(to));
    writes(range_of(value_of(to), size));
  }
  record(command);
}

void VulkanStream::clear(Address<std::byte> to, std::size_t size) {
  if (to.space() == Space::kHost) return Stream::clear(to, size);
  if (size == 0 || is_rehearsing_) return;
  FERRY_CHECK_EQ(size % 4, 0u);
  writes(range_of(value_of(to), size));
  record({.to = memory_.place_of(value_of(to)), .size = size});
}

Stream::Event VulkanStream::submit() {
  if (recording_ != nullptr) {
    flush();
    if (recording_->marks.is_traced) recording_->marks.end(recording_->commands.handle());
    if (!recording_->pending.empty()) recording_->commands.barrier_to_host();
    recording_->commands.end();
    trace_.hand_over(recording_->marks, num_dispatches_, num_barriers_);
    recording_->number = last_submission_ = device_.queue().submit(recording_->commands.handle());
    recording_->last_reader = last_submission_;
    for (Recording* lender : recording_->lenders) lender->last_reader = last_submission_;
    running_.push_back(std::move(recording_));
    num_recorded_ = 0;
  }
  return Event{last_submission_};
}

void VulkanStream::wait(Event event) {
  const auto number = static_cast<uint64_t>(event);
  if (number == 0) return;
  {
    const Span span(Zone::kWaitDevice);
    device_.queue().wait(number);
  }
  collect(number, now_ticks());
  submit_at_ = kFirstCommands;
}

/// The logits of a large batch are 30 MB, which one thread would copy for milliseconds.
void VulkanStream::deliver(const Recording::Download& download) {
  constexpr std::size_t kPiece = std::size_t{1} << 18;  // bytes
  const auto num_pieces = static_cast<int64_t>((download.size + kPiece - 1) / kPiece);
  const auto copy_piece = [&](int64_t piece, int) {
    const std::size_t first = static_cast<std::size_t>(piece) * kPiece;
    std::memcpy(download.to + first, download.from + first, std::min(kPiece, download.size - first));
  };
  if (num_pieces <= 1) return copy_piece(0, 0);
  pool().parallel_for(num_pieces, copy_piece);
}

/// Hands the host what the submissions up to `num_done` brought, of which it knows since `seen` (ticks). A recording's tables
/// may still be read by the submission behind the last that was recorded to read them (an op's second dispatch), so that one
/// behind that must have run too.
void VulkanStream::collect(uint64_t num_done, uint64_t seen) {
  uint64_t last_done = 0;
  for (const auto& recording : running_) {
    if (recording->number > num_done) break;
    last_done = recording->number;
    trace_.collect(recording->marks, seen);
    for (const Recording::Download& download : recording->pending) deliver(download);
    recording->pending.clear();
  }
  const auto is_kept = [&](const auto& recording) { return recording->last_reader >= last_done; };
  const auto kept_end = std::stable_partition(running_.begin(), running_.end(), is_kept);
  for (auto recording = kept_end; recording != running_.end(); ++recording) {
    take_back_tables(**recording);
    free_.push_back(std::move(*recording));
  }
  running_.erase(kept_end, running_.end());
}

void VulkanStream::rehearse(const std::function<void()>& work) {
  submit();  // what came before is no part of it
  is_rehearsing_ = true;
  rehearsed_.clear();
  try {
    work();
  } catch (...) {
    is_rehearsing_ = false;
    throw;
  }
  is_rehearsing_ = false;
  device_.pipelines().prepare(rehearsed_, pool());
}

void VulkanStream::reads(ConstMatrixView rows) { reads(Range::of(rows)); }
void VulkanStream::writes(MatrixView rows) { writes(Range::of(rows)); }

void VulkanStream::dispatch(const Kernel& kernel, std::span<const std::byte> push, Grid grid) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return next_.clear();
  if (is_rehearsing_) {
    rehearsed_.push_back(kernel);
    return next_.clear();
  }
  Command command{.pipeline = device_.pipelines().get(kernel), .push_bytes = static_cast<uint32_t>(push.size()), .grid = grid};
  std::memcpy(command.push.data(), push.data(), push.size());
  record(command);
}

uint64_t VulkanStream::upload_bytes(std::span<const std::byte> bytes) {
  if (is_rehearsing_) return 0;
  const Arena::Piece piece = recording().tables.take(bytes.size());
  if (!bytes.empty()) std::memcpy(piece.host, bytes.data(), bytes.size());
  num_uploaded_bytes_ += std::ssize(bytes);
  return piece.address;
}

uint64_t VulkanStream::upload_bytes_once(std::span<const std::byte> bytes) {
  if (is_rehearsing_) return 0;
  Recording& current = recording();
  for (const SentOnce& sent : sent_once_) {
    const bool is_same = sent.recording != nullptr && sent.bytes.size() == bytes.size() &&
                         std::memcmp(sent.bytes.data(), bytes.data(), bytes.size()) == 0;
    if (!is_same) continue;
    if (sent.recording != &current) {
      current.lenders.push_back(sent.recording);
      sent.recording->last_reader = Recording::kNotYet;
    }
    return sent.address;
  }
  SentOnce& sent = sent_once_[next_sent_++ % sent_once_.size()];
  sent.bytes.assign(bytes.begin(), bytes.end());
  sent.address = upload_bytes(bytes);
  sent.recording = &current;
  return sent.address;
}

/// Its room is about to be written anew.
void VulkanStream::take_back_tables(const Recording& recording) {
  for (SentOnce& sent : sent_once_) {
    if (sent.recording == &recording) sent.recording = nullptr;
  }
}

uint64_t VulkanStream::scratch(std::size_t size) {
  if (is_rehearsing_) return 0;
  if (scratch_.empty() || scratch_.back().size() < size)
    reserve_scratch(std::max(size, scratch_.empty() ? std::size_t{1} << 20 : 2 * scratch_.back().size()));
  return value_of(scratch_.back().address());
}

void VulkanStream::reserve_scratch(std::size_t size) {
  if (scratch_.empty() || scratch_.back().size() < size) scratch_.push_back(memory_.allocate(size));
}

std::size_t VulkanStream::scratch_bytes() const {
  return std::transform_reduce(scratch_.begin(), scratch_.end(), std::size_t{0}, std::plus<>(),
                               [](const Storage& room) { return room.size(); });
}

Recording& VulkanStream::recording() {
  if (recording_ != nullptr) return *recording_;
  if (free_.empty()) free_.push_back(std::make_unique<Recording>(device_));
  recording_ = std::move(free_.back());
  free_.pop_back();
  recording_->lenders.clear();
  recording_->last_reader = Recording::kNotYet;
  recording_->tables.reset();
  recording_->uploads.reset();
  recording_->downloads.reset();
  recording_->commands.begin();
  trace_.begin(recording_->marks, recording_->commands.handle());
  recording_->commands.barrier();  // behind what was submitted before
  hazards_.clear();
  copy_hazards_.clear();
  has_copies_ = false;
  return *recording_;
}

void VulkanStream::record(const Command& command) {
  recording();
  const bool is_dispatch = command.is_dispatch();
  if ((is_dispatch ? hazards_ : copy_hazards_).meets(next_)) put_barrier(is_dispatch && !has_copies_);
  has_copies_ = has_copies_ || !is_dispatch;
  hazards_.add(next_);
  copy_hazards_.add(next_);
  next_.clear();
  group_.push_back(command);
  if (recording_->marks.is_traced) mark(group_.back());
  if (is_dispatch) ++num_dispatches_;
  if (++num_recorded_ < submit_at_) return;
  submit_at_ = std::min(4 * submit_at_, kMostCommands);
  submit();
}

void VulkanStream::mark(Command& command) {
  OpMarks& marks = recording_->marks;
  command.op = command.is_dispatch() ? marks.add_dispatch() : marks.add_copy(command.size, command.is_of_host);
}

void VulkanStream::put_barrier(bool is_of_dispatches) {
  flush();
  recording_->commands.barrier(is_of_dispatches ? Commands::Scope::kDispatches : Commands::Scope::kAll);
  ++num_barriers_;
  hazards_.clear();
  if (is_of_dispatches) return;
  copy_hazards_.clear();
  has_copies_ = false;
}

void VulkanStream::flush() {
  if (recording_->marks.is_traced && !group_.empty())
    recording_->marks.begin_group(recording_->commands.handle(), group_.front().op, group_.back().op);
  if (order_ == Order::kReversed) std::reverse(group_.begin(), group_.end());
  for (const Command& command : group_) emit(command);
  group_.clear();
}

void VulkanStream::emit(const Command& command) {
  const DeviceFunctions& vk = device_.vk();
  VkCommandBuffer commands = recording_->commands.handle();
  if (!command.is_dispatch()) {
    if (command.from.buffer == VK_NULL_HANDLE)
      return vk.CmdFillBuffer(commands, command.to.buffer, command.to.offset, command.size, 0);
    const VkBufferCopy copy{.srcOffset = command.from.offset, .dstOffset = command.to.offset, .size = command.size};
    return vk.CmdCopyBuffer(commands, command.from.buffer, command.to.buffer, 1, &copy);
  }
  vk.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, command.pipeline);
  vk.CmdPushConstants(commands, device_.pipelines().layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, command.push_bytes,
                      command.push.data());
  vk.CmdDispatch(commands, command.grid.x, command.grid.y, command.grid.z);
}

}  // namespace ferry::vulkan
