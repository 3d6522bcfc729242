#include "kernels/vulkan/op_marks.h"

#include <algorithm>
#include <limits>

#include "profiler/span.h"

namespace ferry::vulkan {

void OpMarks::begin(Device& device, VkCommandBuffer commands) {
  if (timestamps == nullptr) timestamps = std::make_unique<Timestamps>(device);
  timestamps->begin(commands);
  ops.clear();
  stretches.clear();
  is_traced = true;
}

uint32_t OpMarks::add_dispatch() {
  const SpanRecord op = open_operator().value_or(make_span_record(Zone::kDeviceOther, 0, 0, 0, 0));
  if (ops.empty() || ops.back().zone != op.zone || ops.back().begin != op.begin) ops.push_back(op);
  return static_cast<uint32_t>(ops.size() - 1);
}

uint32_t OpMarks::add_copy(std::size_t bytes, bool is_of_host) {
  if (!is_of_host && open_operator()) return add_dispatch();
  if (ops.empty() || ops.back().zone != Zone::kDeviceCopy) ops.push_back(make_span_record(Zone::kDeviceCopy, 0, 0, 0, 0));
  constexpr std::size_t kMost = std::numeric_limits<uint32_t>::max();
  ops.back().a = static_cast<uint32_t>(std::min(kMost, ops.back().a + bytes));
  return static_cast<uint32_t>(ops.size() - 1);
}

void OpMarks::begin_group(VkCommandBuffer commands, uint32_t first_op, uint32_t last_op) {
  const bool is_same = !stretches.empty() && first_op == last_op && stretches.back().first_op == first_op &&
                       stretches.back().last_op == first_op;
  if (is_same) return;
  timestamps->put(commands);
  stretches.push_back({first_op, last_op});
}

void OpMarks::end(VkCommandBuffer commands) {
  if (!stretches.empty()) timestamps->put(commands);
}

}  // namespace ferry::vulkan
