#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/report/timeline/timeline.h"

namespace ferry {

/// A figure of a capture that somebody may want to be better, measured several times within it. Steps that follow each other
/// see the same machine, so single ones are no samples of their own: each value is of a block of consecutive steps or requests.
struct Figure {
  static constexpr std::size_t kBlocks = 16;  // at most

  std::string name;  // "decode ×4 tokens/s", "prefill 64 ms a step", "tokens/s" of all steps, "TTFT p50 ms"
  bool more_is_better = true;
  std::vector<double> samples;  // one a block, in order of time; above 0
  double split_share = 0;       // by which odd and even steps differ
  double drift_share = 0;       // by which the blocks' first and second half differ: what nobody changed
  double error_share = 0;  // standard error of the run's mean, from the means of its quarters: blocks follow each other, too

  double value() const;  // median
};

/// Steps that warm up are left out. Groups of steps are those of views (a bench's sections, else phases) and, where there are
/// no sections, also steps of one size. By group in the order of the capture's steps, then those of all steps and of requests.
std::vector<Figure> measure_figures(const Timeline& timeline);

/// By its name; nullptr if there is none.
const Figure* find_figure(const std::vector<Figure>& figures, std::string_view name);

/// The group of steps that a figure of that name is of ("decode ×4"); nothing for those of all steps and of requests.
std::optional<std::string> steps_group(std::string_view name);

/// Which steps a figure of that name is of, as indices into timeline.steps; all but warming ones where it names no group.
std::vector<std::size_t> steps_of_figure(const Timeline& timeline, std::string_view name);

}  // namespace ferry
