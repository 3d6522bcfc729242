#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "moe/placement/placement_types.h"

// What was asked of each expert, in windows of steps: what a placement is made of.

namespace ferry {

/// Sums over steps, of logical experts. Where older windows count less, each step counts as a part of one.
struct ExpertLoads {
  int64_t num_layers = 0;
  int64_t num_experts = 0;
  double num_steps = 0;
  std::vector<double> rows;     // [num_layers, num_experts]
  std::vector<double> touched;  // [num_layers, num_experts] steps in which the expert had a row
};

/// [num_experts] expected time of each expert of a layer a step: the mean over steps of (touched ? fixed + per_row * rows : 0).
/// All alike, the fixed part of a cost, if there was no step.
std::vector<double> expected_cost(const ExpertLoads& loads, int64_t layer, const ExpertCost& cost);

/// Rows per window, layer and logical expert: the shape that vLLM's balancer keeps ([window, layers, experts] int32, there of
/// physical experts; vllm/distributed/eplb/eplb_state.py).
struct LoadRecord {
  int64_t num_windows = 0;
  int64_t num_layers = 0;
  int64_t num_experts = 0;
  std::vector<int32_t> rows;  // [num_windows, num_layers, num_experts]

  std::span<const int32_t> layer(int64_t window, int64_t layer) const {
    return std::span(rows).subspan(static_cast<std::size_t>((window * num_layers + layer) * num_experts),
                                   static_cast<std::size_t>(num_experts));
  }
};

/// The last windows of a run. Everything is allocated at the start; the counts of a window stop at the largest int32.
///
///   after a step, of each layer: windows.add_layer(l, load.layer(l));   then: windows.end_step();
///
/// One writer; readers under the owner's lock.
class LoadWindows {
 public:
  struct Options {
    int64_t num_layers = 1;
    int64_t num_experts = 1;
    int64_t steps_per_window = 64;
    int64_t num_windows = 16;
  };

  /// Throws kInvalidArgument if a number is less than 1 or all windows together have more than kMaxCounts counts.
  explicit LoadWindows(const Options& options);
  static constexpr int64_t kMaxCounts = int64_t{1} << 28;  // 2 GiB of two int32 each

  /// Takes [num_experts] rows of the layer since the start, as ExpertLoad has them: what the step added is counted.
  void add_layer(int64_t layer, std::span<const int64_t> rows_since_start);
  /// The layers of a step are all added. A step without any row does not count.
  void end_step();

  /// Sums over the windows; one that is `half_life` windows older counts half as much.
  ExpertLoads loads(double half_life = std::numeric_limits<double>::infinity()) const;
  /// The windows, from the oldest on, the one that is not full yet included.
  LoadRecord record() const;

 private:
  struct Window {
    int64_t num_steps = 0;
    std::vector<int32_t> rows;     // [num_layers, num_experts]
    std::vector<int32_t> touched;  // [num_layers, num_experts]
  };

  /// From the newest (0) on; empty ones beyond num_used_.
  const Window& window(int64_t age) const;

  Options options_;
  std::vector<int64_t> seen_;    // [num_layers, num_experts] rows since the start, up to now
  std::vector<Window> windows_;  // a ring
  int64_t current_ = 0;          // the newest one
  int64_t num_used_ = 1;
  bool has_rows_ = false;  // in the step that is being added
};

}  // namespace ferry
