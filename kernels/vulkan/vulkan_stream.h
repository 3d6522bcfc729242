#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/stream.h"
#include "kernels/vulkan/device_memory.h"
#include "kernels/vulkan/device_trace.h"
#include "kernels/vulkan/hazards.h"
#include "kernels/vulkan/pipelines.h"
#include "kernels/vulkan/recording.h"

namespace ferry::vulkan {

/// Workgroups along each axis. Of x any number is allowed that the device takes (65535 at least), of y and z 65535.
struct Grid {
  uint32_t x = 1, y = 1, z = 1;
};

/// Records dispatches and copies, and submits them to the device's queue. Each says which ranges it reads and writes; one that
/// would meet an earlier one's gets a barrier in front of it, the others run side by side.
///
///   stream.reads(args.x);
///   stream.writes(args.out);
///   stream.dispatch({find_shader("rms_norm", dtype), {256}}, RmsNormPush{...}, {rows});
class VulkanStream final : public Stream {
 public:
  /// All outlive it. The backend's memory is a DeviceMemory.
  VulkanStream(const Backend& backend, ThreadPool& pool);
  ~VulkanStream() override;

  void copy(Address<const std::byte> from, Address<std::byte> to, std::size_t size) override;
  void clear(Address<std::byte> to, std::size_t size) override;
  Event submit() override;
  /// Throws Error{kUnavailable} when the device is lost or does not answer in time.
  void wait(Event event) override;

  /// What the next dispatch reads or writes: rows that lie between the view's first and last element, or `count` Ts.
  void reads(ConstMatrixView rows);
  void writes(MatrixView rows);
  template <class T>
  void reads(Address<const T> first, int64_t count) {
    reads(Range::of(first.raw(), count));
  }
  template <class T>
  void writes(Address<T> first, int64_t count) {
    writes(Range::of(first.raw(), count));
  }
  void reads(Range range) { next_.reads.push_back(range); }
  void writes(Range range) { next_.writes.push_back(range); }

  /// Records `kernel` over `grid`; nothing if that is empty. Push is a struct of shaders/push_*.h.
  template <class Push>
  void dispatch(const Kernel& kernel, const Push& push, Grid grid) {
    static_assert(sizeof(Push) <= Pipelines::kMaxPushBytes);
    dispatch(kernel, std::as_bytes(std::span(&push, 1)), grid);
  }

  /// Where the device finds a copy of `values` of the host until what is recorded now has run; 16-byte aligned. The host may
  /// change its own at once. No hazards: nobody writes there.
  template <class T>
  uint64_t upload(std::span<const T> values) {
    return upload_bytes(std::as_bytes(values));
  }
  /// Likewise, where ops of several layers send the same: values that were sent so lately are not sent again.
  template <class T>
  uint64_t upload_once(std::span<const T> values) {
    return upload_bytes_once(std::as_bytes(values));
  }
  /// Room for what the dispatches of one op hand to each other, of which `reads` and `writes` must tell as of any other. Every
  /// op gets the same room, so an op calls this once; ranges that meet keep ops apart. It grows where it must.
  uint64_t scratch(std::size_t size);
  /// Makes that room large enough for `size` bytes. Throws Error{kResourceExhausted}.
  void reserve_scratch(std::size_t size);
  /// What it takes of the device's memory.
  std::size_t scratch_bytes() const;

  const DeviceTraits& traits() const { return device_.traits(); }

  /// Runs `work`, which hands ops to this stream, for the kernels alone that it needs: they are made ready on the pool, but
  /// nothing of it is recorded, so that what `work` reads of the device's memory was not written.
  void rehearse(const std::function<void()>& work);

  /// How dispatches between two barriers are handed on. Their results must not depend on it: reversed, they show which ranges
  /// were not told of, also on a device that runs everything in turn.
  enum class Order : uint8_t { kAsRecorded, kReversed };
  void set_order(Order order) { order_ = order; }
  /// Since it was made.
  int64_t num_dispatches() const { return num_dispatches_; }
  int64_t num_barriers() const { return num_barriers_; }
  int64_t num_uploaded_bytes() const { return num_uploaded_bytes_; }

 private:
  /// Of a submission behind a wait: few, so that the device begins while the host records the rest. Each that follows has
  /// four times as many, since handing over takes time as well.
  static constexpr int64_t kFirstCommands = 12, kMostCommands = 192;
  static_assert(kMostCommands < Timestamps::kRoom, "each may begin a stretch, and the last one ends");

  struct Command {
    VkPipeline pipeline = VK_NULL_HANDLE;  // none: a copy
    std::array<std::byte, Pipelines::kMaxPushBytes> push;
    uint32_t push_bytes = 0;
    Grid grid;
    BufferPlace from, to;     // of a copy; from without a buffer: zeros
    uint64_t size = 0;        // bytes of a copy
    bool is_of_host = false;  // a copy from there or to there
    uint32_t op = 0;          // in the recording's marks, where it has any

    bool is_dispatch() const { return pipeline != VK_NULL_HANDLE; }
  };

  void dispatch(const Kernel& kernel, std::span<const std::byte> push, Grid grid);
  uint64_t upload_bytes(std::span<const std::byte> bytes);
  uint64_t upload_bytes_once(std::span<const std::byte> bytes);
  void take_back_tables(const Recording& recording);

  Recording& recording();
  void record(const Command& command);
  void put_barrier(bool is_of_dispatches);
  void flush();
  void emit(const Command& command);
  void mark(Command& command);
  void deliver(const Recording::Download& download);
  void collect(uint64_t num_done, uint64_t seen);

  Device& device_;
  DeviceMemory& memory_;
  Hazards hazards_;             // since the last barrier
  Hazards copy_hazards_;        // since the last that copies heed
  bool has_copies_ = false;     // since the last barrier
  Access next_;                 // of the next dispatch
  std::vector<Command> group_;  // recorded since the last barrier, not handed on yet
  std::unique_ptr<Recording> recording_;
  std::deque<std::unique_ptr<Recording>> running_;  // submitted, oldest first
  std::vector<std::unique_ptr<Recording>> free_;
  std::vector<Storage> scratch_;  // the last is in use, the others were too small
  /// Values in the tables of a recording that is in progress or was submitted.
  struct SentOnce {
    Recording* recording = nullptr;  // none: no values
    std::vector<std::byte> bytes;
    uint64_t address = 0;
  };
  std::array<SentOnce, 8> sent_once_;
  std::size_t next_sent_ = 0;  // that is replaced next
  uint64_t last_submission_ = 0;
  int64_t num_recorded_ = 0;            // commands since the last submission
  int64_t submit_at_ = kFirstCommands;  // as many are submitted
  Order order_ = Order::kAsRecorded;
  int64_t num_dispatches_ = 0, num_barriers_ = 0, num_uploaded_bytes_ = 0;
  bool is_rehearsing_ = false;
  std::vector<Kernel> rehearsed_;  // kernels that were asked for
  DeviceTrace trace_;
};

}  // namespace ferry::vulkan
