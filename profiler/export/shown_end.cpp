#include "profiler/export/shown_end.h"

#include <algorithm>

namespace ferry {

int64_t shown_end_ns(const Timeline& timeline, int32_t slice, int32_t last) {
  const auto begin = timeline.slices.begin() + slice, end = timeline.slices.begin() + last;
  const int64_t end_ns = begin->end_ns;
  const auto next = std::partition_point(begin, end, [&](const Slice& s) { return s.begin_ns < end_ns; });
  return next != end && next->begin_ns == end_ns && end_ns > begin->begin_ns ? end_ns - 1 : end_ns;
}

int64_t shown_end_ns(const Timeline& timeline, const StepInfo& step) {
  const StepInfo* const next = &step + 1;
  const bool has_next = next != timeline.steps.data() + timeline.steps.size();
  return has_next && next->begin_ns == step.end_ns && step.end_ns > step.begin_ns ? step.end_ns - 1 : step.end_ns;
}

}  // namespace ferry
