#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/vulkan/timestamps.h"
#include "profiler/span_record.h"

namespace ferry::vulkan {

/// Which operators a submission's commands are of, and the moments between them. A stretch is one group of commands between two
/// barriers, which may run side by side; or several in a row that are all of one operator. A moment stands where a stretch ends
/// and the next begins, so that stretches neither overlap nor leave gaps.
struct OpMarks {
  struct Stretch {
    uint32_t first_op = 0, last_op = 0;  // indices into ops: those between are in it too
  };

  /// From here on what is recorded is marked. First of all in a command buffer.
  void begin(Device& device, VkCommandBuffer commands);
  /// The operator of the next command, as an index into ops: the one that the calling thread is in. A copy between host and
  /// device is no operator's, and neither is one of `bytes` (or that many zeros) outside of any.
  uint32_t add_dispatch();
  uint32_t add_copy(std::size_t bytes, bool is_of_host);
  /// Before commands of these operators, behind a barrier.
  void begin_group(VkCommandBuffer commands, uint32_t first_op, uint32_t last_op);
  /// Behind the last command.
  void end(VkCommandBuffer commands);

  bool is_traced = false;
  std::vector<SpanRecord> ops;  // as open_operator() has them; of copies and what is no operator's, begin is 0
  std::vector<Stretch> stretches;
  std::unique_ptr<Timestamps> timestamps;  // stretch i lies between moments i and i + 1
  uint64_t submitted = 0;                  // ticks of the host
};

}  // namespace ferry::vulkan
