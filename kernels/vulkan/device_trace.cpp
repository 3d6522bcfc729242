#include "kernels/vulkan/device_trace.h"

#include <algorithm>
#include <vector>

#include "profiler/span.h"

namespace ferry::vulkan {
namespace {

DeviceFacts describe(const Device& device) {
  const DeviceTraits& traits = device.traits();
  const char* clock = traits.has_calibrated_time ? "calibrated" : "bracketed";
  return {.name = device.physical().info.name,
          .driver = device.physical().info.driver,
          .clock = traits.timestamp_ns > 0 ? clock : "none: its queue has no timestamps"};
}

}  // namespace

DeviceTrace::DeviceTrace(Device& device)
    : device_(device), facts_(describe(device)), lane_(recorder().register_device(facts_)) {}

DeviceTrace::~DeviceTrace() { recorder().retire_device(lane_); }

void DeviceTrace::begin(OpMarks& marks, VkCommandBuffer commands) {
  const bool was_tracing = is_tracing_;
  is_tracing_ = is_traced(Zone::kDeviceCopy) && !facts_.clock.starts_with("none");
  if (!is_tracing_) return;
  if (!was_tracing) facts_.clock_bound_ns = 0;
  if (!clock_) clock_.emplace(device_);
  marks.begin(device_, commands);
}

void DeviceTrace::hand_over(OpMarks& marks, int64_t num_dispatches, int64_t num_barriers) {
  record_value(Zone::kDeviceDispatches, num_dispatches - num_dispatches_);
  record_value(Zone::kDeviceBarriers, num_barriers - num_barriers_);
  if (marks.is_traced) marks.submitted = now_ticks();
  num_dispatches_ = num_dispatches;
  num_barriers_ = num_barriers;
}

void DeviceTrace::collect(OpMarks& marks, uint64_t seen) {
  if (!marks.is_traced) return;
  marks.is_traced = false;
  if (marks.stretches.empty()) return;
  const std::vector<uint64_t> moments = marks.timestamps->read();
  if (moments.empty()) return give_up("none: its timestamps are not there when its work is done");
  clock_->follow(marks.submitted, moments.front(), moments.back(), seen);
  push_spans(marks, place(moments, marks.submitted, seen));
  if (clock_->bound_ns() <= facts_.clock_bound_ns) return;
  facts_.clock_bound_ns = clock_->bound_ns();
  recorder().describe_device(lane_, facts_);
}

/// The moments in the host's ticks. Nothing runs before it is handed over, before what was handed over earlier, or after it is
/// seen to have run; so no moment moves by more than the clock's error here.
std::vector<uint64_t> DeviceTrace::place(const std::vector<uint64_t>& moments, uint64_t submitted, uint64_t seen) {
  std::vector<uint64_t> ticks;
  for (const uint64_t moment : moments) {
    const uint64_t earliest = std::min(std::max(submitted, last_end_), seen);
    last_end_ = std::clamp(clock_->place(moment), earliest, seen);
    ticks.push_back(last_end_);
  }
  return ticks;
}

/// Each operator from the begin of its first stretch to the end of its last: in the order in which they end.
void DeviceTrace::push_spans(const OpMarks& marks, const std::vector<uint64_t>& ticks) {
  struct Times {
    uint64_t begin = 0, end = 0;
  };
  std::vector<Times> times(marks.ops.size());
  for (std::size_t s = 0; s < marks.stretches.size(); ++s) {
    for (uint32_t op = marks.stretches[s].first_op; op <= marks.stretches[s].last_op; ++op) {
      if (times[op].end == 0) times[op].begin = ticks[s];
      times[op].end = ticks[s + 1];
    }
  }
  for (std::size_t i = 0; i < marks.ops.size(); ++i) {
    SpanRecord span = marks.ops[i];
    const bool is_operator = span.begin != 0;
    const bool is_continued = is_operator && span.zone == last_operator_.zone && span.begin == last_operator_.begin;
    if (is_operator) last_operator_ = span;
    if (is_continued) span.micro_batch |= kContinuedBit;
    span.begin = times[i].begin;
    span.end = times[i].end;
    lane_->push(span);
  }
}

void DeviceTrace::give_up(const char* reason) {
  facts_.clock = reason;
  recorder().describe_device(lane_, facts_);
}

}  // namespace ferry::vulkan
