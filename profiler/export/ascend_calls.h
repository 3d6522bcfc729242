#pragma once

#include <cstdint>
#include <vector>

#include "profiler/report/timeline/timeline.h"

// What ran on one rank as the readers of Ascend profiles see it: calls of the host, and kernels of the device that they
// launched. A thread that computes is host and device in one: its operator is a call and that call's kernel. What a thread
// hands over to a real device is a call of its own time, and one kernel or several: an operator that others interrupted.

namespace ferry {

/// An operator as a kernel: one row of kernel_details.csv.
struct AscendKernel {
  int32_t slice = 0;    // index into Timeline::slices
  int64_t stream = 0;   // number of its thread among the rank's threads
  int64_t work_ns = 0;  // its duration without waits and operators inside it
  int64_t gap_ns = 0;   // from the end of the stream's kernel before it
  int32_t call = 0;     // index into AscendWork::calls: which launched it
};

/// A call of the framework: one row of operator_details.csv.
struct AscendCall {
  int32_t slice = 0;                            // index into Timeline::slices; of a call that nobody saw, its first kernel's
  bool is_seen = true;                          // false: the device ran it, and no thread is known to have handed it over
  int64_t self_ns = 0, total_ns = 0;            // of its kernels; with those of calls inside it
  int64_t core_self_ns = 0, core_total_ns = 0;  // of these, what multiplies matrices (accelerator_core())
};

struct AscendWork {
  std::vector<AscendKernel> kernels;  // by begin; their work adds up to what the rank's threads and devices computed
  std::vector<AscendCall> calls;      // by lane, then begin; those that nobody saw are the last

  /// The number that ties a call to its kernels in all files, from 1.
  static int64_t connection(int32_t call) { return int64_t{call} + 1; }
  /// Index into `calls` of a slice of a thread, -1 if it is none.
  int32_t call_of(int32_t slice) const;
};

/// `lanes`: those of the rank, indices into Timeline::lanes.
AscendWork find_work(const Timeline& timeline, const std::vector<int32_t>& lanes);

}  // namespace ferry
