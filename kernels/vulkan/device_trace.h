#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/vulkan/device_clock.h"
#include "kernels/vulkan/op_marks.h"
#include "profiler/recorder.h"

namespace ferry::vulkan {

/// The device's own time in the trace: a lane of what a stream's submissions did, by the device's timestamps. While operators
/// are recorded (TraceLevel::kOperators) a submission is marked; what its marks tell is read when the host sees that it has
/// run, and nobody ever waits for it. While they are not it costs a few comparisons a submission. One thread at a time.
class DeviceTrace {
 public:
  /// The device outlives it.
  explicit DeviceTrace(Device& device);
  ~DeviceTrace();
  DeviceTrace(const DeviceTrace&) = delete;
  DeviceTrace& operator=(const DeviceTrace&) = delete;

  /// Decides whether the submission that begins is marked. First of all in its command buffer.
  void begin(OpMarks& marks, VkCommandBuffer commands);
  /// The submission is about to be handed over; so many dispatches and barriers the stream has recorded since it was made.
  void hand_over(OpMarks& marks, int64_t num_dispatches, int64_t num_barriers);
  /// It has run, and the host saw that at `seen` (ticks). Submissions come in their order. Again: nothing happens.
  void collect(OpMarks& marks, uint64_t seen);

 private:
  std::vector<uint64_t> place(const std::vector<uint64_t>& moments, uint64_t submitted, uint64_t seen);
  void push_spans(const OpMarks& marks, const std::vector<uint64_t>& ticks);
  void give_up(const char* reason);

  Device& device_;
  DeviceFacts facts_;
  TraceBuffer* const lane_;
  std::optional<DeviceClock> clock_;
  bool is_tracing_ = false;
  int64_t num_dispatches_ = 0, num_barriers_ = 0;  // of what was handed over
  uint64_t last_end_ = 0;                          // ticks: of the lane's spans
  SpanRecord last_operator_;                       // of the lane
};

}  // namespace ferry::vulkan
