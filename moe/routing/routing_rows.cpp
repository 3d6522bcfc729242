#include "moe/routing/routing_rows.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace ferry {
namespace {

/// Where another sequence begins among `count` places: the golden section lays any number of them far apart (Weyl's sequence).
int64_t place_of(int64_t sequence, int64_t count) {
  constexpr double kGolden = 0.6180339887498949;
  const double turns = static_cast<double>(sequence) * kGolden;
  return static_cast<int64_t>((turns - static_cast<double>(static_cast<int64_t>(turns))) * static_cast<double>(count));
}

}  // namespace

RoutingRows::RoutingRows(const RoutingTrace& trace) : trace_(trace) {
  std::vector<int64_t> sizes;
  int64_t end = 0;
  for (const RoutingStep& step : trace.steps) {
    if (step.phase == RoutingPhase::kDecode) {
      sizes.push_back(step.num_rows);
    } else {
      prefill_.push_back(&step);
      prefill_ends_.push_back(end += step.num_rows);
    }
  }
  if (sizes.empty()) return;
  const auto middle = sizes.begin() + std::ssize(sizes) / 2;
  std::nth_element(sizes.begin(), middle, sizes.end());
  decode_rows_ = *middle;
  for (const RoutingStep& step : trace.steps)
    if (step.phase == RoutingPhase::kDecode && step.num_rows >= decode_rows_) decode_.push_back(&step);
}

bool RoutingRows::reads_decode(RoutingPhase phase) const {
  return prefill_.empty() || (phase == RoutingPhase::kDecode && !decode_.empty());
}

RoutingRows::Row RoutingRows::row(RoutingPhase phase, int64_t sequence, int64_t position) const {
  if (reads_decode(phase)) {
    const int64_t count = std::ssize(decode_);
    const int64_t step = (position + place_of(sequence / decode_rows_, count)) % count;
    return {decode_[static_cast<std::size_t>(step)], sequence % decode_rows_};
  }
  const int64_t count = prefill_ends_.back(), at = (position + place_of(sequence, count)) % count;
  const auto found = std::upper_bound(prefill_ends_.begin(), prefill_ends_.end(), at);
  const RoutingStep* const step = prefill_[static_cast<std::size_t>(found - prefill_ends_.begin())];
  return {step, at - (*found - step->num_rows)};
}

void RoutingRows::add_rows(RoutingPhase phase, int64_t sequence, int64_t position, int64_t count, int64_t layer,
                           std::span<int32_t> rows) const {
  const int64_t period = reads_decode(phase) ? std::ssize(decode_) : prefill_ends_.back();  // then the same rows come again
  for (int64_t i = 0; i < std::min(count, period); ++i) {
    const Row from = row(phase, sequence, position + i);
    const auto times = static_cast<int32_t>(count / period + (i < count % period ? 1 : 0));
    for (const uint16_t id : trace_.of(*from.step, layer, from.row)) rows[id] += times;
  }
}

const RoutingTrace& require_steps(const RoutingTrace& trace, const std::string& source) {
  if (trace.steps.empty()) throw_invalid(source + ": routing of no step; allowed: of at least one");
  return trace;
}

RoutingReplay::RoutingReplay(const RoutingTrace& trace, const std::string& source) : rows_(require_steps(trace, source)) {}

void RoutingReplay::add_rows(RoutingPhase phase, int64_t sequence, int64_t position, int64_t count) {
  for (int64_t i = 0; i < count; ++i) rows_of_step_.push_back(rows_.row(phase, sequence, position + i));
}

bool RoutingReplay::routed(int64_t layer, int64_t first_row, std::span<int32_t> ids) {
  const RoutingTrace& trace = rows_.trace();
  const auto found = std::lower_bound(trace.shape.layers.begin(), trace.shape.layers.end(), layer);
  if (found == trace.shape.layers.end() || *found != layer) return false;
  const int64_t k = trace.shape.top_k, l = found - trace.shape.layers.begin();
  for (int64_t r = 0; r < std::ssize(ids) / k; ++r) {
    const RoutingRows::Row from = rows_of_step_[static_cast<std::size_t>(first_row + r)];
    std::ranges::copy(trace.of(*from.step, l, from.row), ids.begin() + r * k);
  }
  return true;
}

}  // namespace ferry
