#pragma once

#include <cstddef>
#include <map>
#include <tuple>
#include <vector>

#include "profiler/report/incidents/incidents.h"

namespace ferry {

/// Steps that have the same one ought to take as long as each other: their group (of step_groups()), tokens and sequences, the
/// latter two as buckets: up to 8 exactly, then within a tenth.
using StepSort = std::tuple<std::size_t, int, int>;
StepSort sort_of(const StepInfo& step);

/// Lengths of steps outside of incidents, in ns.
class LikeSteps {
 public:
  static constexpr std::size_t kFewest = 8;  // that a comparison rests on
  static constexpr std::size_t kMost = 200;  // nearest ones

  /// `is_whole`: no step of the time is missing. Kept ones of an archive, picked by their lengths, are like no others.
  LikeSteps(const Timeline& timeline, const std::vector<Incident>& incidents, bool is_whole);

  /// Those of a sort that an incident's are compared with; fewer than kFewest: it cannot be told.
  std::vector<double> beside(std::size_t incident, const StepSort& sort) const;
  /// Those between it and the one before it, the latest; and between it and the next one, the first.
  std::vector<double> before(std::size_t incident, const StepSort& sort) const;
  std::vector<double> after(std::size_t incident, const StepSort& sort) const;
  /// The sorts of steps between it and the next one.
  std::vector<StepSort> sorts_after(std::size_t incident) const;

 private:
  std::vector<double> lengths(const std::vector<std::size_t>& steps) const;
  std::vector<std::size_t> between(const StepSort& sort, std::size_t first, std::size_t last) const;
  std::size_t begin_of_quiet_before(std::size_t incident) const;
  std::size_t end_of_quiet_after(std::size_t incident) const;

  const Timeline& timeline_;
  const std::vector<Incident>& incidents_;
  std::map<StepSort, std::vector<std::size_t>> quiet_;  // indices into timeline.steps, ascending
};

}  // namespace ferry
