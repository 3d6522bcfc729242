#pragma once

#include <cstdint>
#include <vector>

#include "profiler/report/timeline/timeline.h"

namespace ferry {

/// What a rank was busy with, moment by moment: the innermost slice of the thread that its steps run on (of a worker: that
/// which answers), whatever its other threads do meanwhile. While a device of the rank runs something, that is it: a thread
/// only hands over.
class RankWork {
 public:
  /// Ranks without slices have no work. `timeline` is only read here.
  RankWork(const Timeline& timeline, int32_t rank);

  /// A part of a slice in which nothing is nested; or nothing recorded, then slice is -1.
  struct Stretch {
    int64_t begin_ns = 0, end_ns = 0;
    int32_t slice = -1;  // index into Timeline::slices
  };
  /// What went on right before the moment: begin_ns < at_ns, and end_ns == at_ns, as what goes on afterwards is cut off. Before
  /// all work there is nothing from the first moment that can be told.
  Stretch before(int64_t at_ns) const;

  /// The thread's lane, -1 if there is none.
  int32_t lane() const { return lane_; }

 private:
  int32_t lane_ = -1;
  std::vector<Stretch> stretches_;  // by time, disjoint, none empty
};

}  // namespace ferry
