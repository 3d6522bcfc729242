#pragma once

#include <cstdint>
#include <vector>

#include "profiler/report/findings/findings.h"
#include "profiler/report/timeline/report_input.h"

// Which steps of a capture the page holds whole, where it cannot hold them all.

namespace ferry {

struct ChosenStep {
  std::size_t step = 0;  // index into timeline.steps
  const char* why = "";  // "asked for", "named by a finding", "slowest", "median", "first", "one of many"
};

/// Numbers of steps that somebody asks for, both ends included; none if `last` < `first`.
struct StepRange {
  uint32_t first = 1, last = 0;
  bool is_any() const { return first <= last; }
  bool holds(uint32_t step) const { return step >= first && step <= last; }
};

/// The step that shows each finding best, as an index into timeline.steps; -1: no single one does. For a finding about a worker
/// the one in which it kept the others waiting for longest; for one about time the coordinator's longest exposed communication.
std::vector<int32_t> find_telling_steps(const ReportInput& input, const std::vector<Finding>& findings);

/// The step that a reader sees first, as an index into timeline.steps; -1: there is none. It is the median of the group (phase
/// or section) that took longest altogether; warm-ups and what a program did aside count where there is nothing else.
int32_t find_opening_step(const Timeline& timeline);

/// Every step once, those first that a reader asks for first: the asked for, `telling` ones, of every group (phase or section)
/// the slowest, the median and the first three; then the rest, from all over the capture.
std::vector<ChosenStep> rank_steps(const ReportInput& input, const std::vector<int32_t>& telling, StepRange wanted);

}  // namespace ferry
