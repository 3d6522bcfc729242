#include "moe/placement/load_windows.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

void require_number(int64_t value, const char* name) {
  if (value >= 1 && value <= LoadWindows::kMaxCounts) return;
  throw_invalid("load windows: " + std::to_string(value) + " " + name + "; allowed: 1 to " +
                std::to_string(LoadWindows::kMaxCounts));
}

void add_saturated(int32_t& count, int64_t more) {
  count = static_cast<int32_t>(std::min<int64_t>(count + more, std::numeric_limits<int32_t>::max()));
}

}  // namespace

std::vector<double> expected_cost(const ExpertLoads& loads, int64_t layer, const ExpertCost& cost) {
  FERRY_CHECK_LT(layer, loads.num_layers);
  std::vector<double> expected(static_cast<std::size_t>(loads.num_experts), cost.fixed);
  if (!(loads.num_steps > 0)) return expected;
  for (std::size_t e = 0; e < expected.size(); ++e) {
    const std::size_t at = static_cast<std::size_t>(layer * loads.num_experts) + e;
    expected[e] = (cost.fixed * loads.touched[at] + cost.per_row * loads.rows[at]) / loads.num_steps;
  }
  return expected;
}

LoadWindows::LoadWindows(const Options& options) : options_(options) {
  require_number(options.num_layers, "layers");
  require_number(options.num_experts, "experts");
  require_number(options.steps_per_window, "steps a window");
  require_number(options.num_windows, "windows");
  // Divided, since the product may not fit.
  if (options.num_windows > kMaxCounts / options.num_layers / options.num_experts) {
    throw_invalid("load windows: " + std::to_string(options.num_windows) + " windows of " + std::to_string(options.num_layers) +
                  " layers and " + std::to_string(options.num_experts) + " experts; allowed: " + std::to_string(kMaxCounts) +
                  " counts in all");
  }
  seen_.resize(static_cast<std::size_t>(options.num_layers * options.num_experts), 0);
  windows_.resize(static_cast<std::size_t>(options.num_windows));
  for (Window& window : windows_) {
    window.rows.resize(seen_.size(), 0);
    window.touched.resize(seen_.size(), 0);
  }
}

void LoadWindows::add_layer(int64_t layer, std::span<const int64_t> rows_since_start) {
  FERRY_CHECK(layer >= 0 && layer < options_.num_layers) << " layer " << layer;
  FERRY_CHECK_EQ(static_cast<int64_t>(rows_since_start.size()), options_.num_experts);
  Window& window = windows_[static_cast<std::size_t>(current_)];
  auto at = static_cast<std::size_t>(layer * options_.num_experts);
  for (const int64_t now : rows_since_start) {
    const int64_t rows = now - std::exchange(seen_[at], now);
    FERRY_CHECK_GE(rows, 0) << " rows in layer " << layer;
    if (rows > 0) {
      add_saturated(window.rows[at], rows);
      add_saturated(window.touched[at], 1);
      has_rows_ = true;
    }
    ++at;
  }
}

void LoadWindows::end_step() {
  if (!std::exchange(has_rows_, false)) return;
  if (++windows_[static_cast<std::size_t>(current_)].num_steps < options_.steps_per_window) return;
  current_ = (current_ + 1) % options_.num_windows;
  num_used_ = std::min(num_used_ + 1, options_.num_windows);
  Window& next = windows_[static_cast<std::size_t>(current_)];
  next.num_steps = 0;
  std::fill(next.rows.begin(), next.rows.end(), 0);
  std::fill(next.touched.begin(), next.touched.end(), 0);
}

const LoadWindows::Window& LoadWindows::window(int64_t age) const {
  return windows_[static_cast<std::size_t>((current_ - age + options_.num_windows) % options_.num_windows)];
}

ExpertLoads LoadWindows::loads(double half_life) const {
  ExpertLoads loads{.num_layers = options_.num_layers,
                    .num_experts = options_.num_experts,
                    .rows = std::vector<double>(seen_.size(), 0.0),
                    .touched = std::vector<double>(seen_.size(), 0.0)};
  for (int64_t age = 0; age < num_used_; ++age) {
    const Window& from = window(age);
    const double weight = std::exp2(-static_cast<double>(age) / half_life);
    loads.num_steps += weight * static_cast<double>(from.num_steps);
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      loads.rows[i] += weight * from.rows[i];
      loads.touched[i] += weight * from.touched[i];
    }
  }
  return loads;
}

LoadRecord LoadWindows::record() const {
  LoadRecord record{.num_layers = options_.num_layers, .num_experts = options_.num_experts};
  for (int64_t age = num_used_ - 1; age >= 0; --age) {
    if (window(age).num_steps == 0) continue;
    ++record.num_windows;
    record.rows.insert(record.rows.end(), window(age).rows.begin(), window(age).rows.end());
  }
  return record;
}

}  // namespace ferry
