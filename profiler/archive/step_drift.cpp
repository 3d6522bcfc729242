#include "profiler/archive/step_drift.h"

#include <algorithm>
#include <cmath>

namespace ferry {
namespace {

/// A mean of logarithms with weights.
struct LogMean {
  double sum = 0, weight = 0;

  void add(double ratio, int64_t num_steps) {
    if (!(ratio > 0) || !std::isfinite(ratio)) return;
    sum += std::log(ratio) * static_cast<double>(num_steps);
    weight += static_cast<double>(num_steps);
  }
  double ratio() const { return weight > 0 ? std::exp(sum / weight) : 0; }
};

}  // namespace

void DriftWatch::add(const StepKind& kind, double seconds, int64_t time_s) {
  const int64_t minute = time_s / 60;
  if (recent_.empty() || recent_.back().minute < minute) recent_.push_back({.minute = minute, .kinds = {}});
  StepHistory::Kinds& kinds = recent_.back().kinds;
  if (kinds.size() < StepHistory::kMaxKinds || kinds.contains(kind)) kinds[kind].add(seconds);
}

const StepDrift& DriftWatch::look(const StepHistory& history, int64_t now_s) {
  while (!recent_.empty() && recent_.front().minute < now_s / 60 - kRecentMinutes) recent_.pop_front();
  StepHistory::Kinds recent;
  for (const Minute& minute : recent_) {
    for (const auto& [kind, sketch] : minute.kinds) recent[kind].add(sketch);
  }
  std::array<LogMean, 3> medians, p99s;
  StepHistory::Kinds day = history.kinds(now_s - kBaselineHours * StepHistory::kHour, now_s + 1);
  for (const auto& [kind, sketch] : recent) {
    const int64_t num_recent = sketch.num_steps();
    if (kind == StepHistory::other_kind(kind.phase) || num_recent < kFewestRecent) continue;
    StepSketch& before = day[kind];
    before.subtract(sketch);
    if (before.num_steps() < kFewestBaseline) continue;
    const auto phase = static_cast<std::size_t>(kind.phase);
    medians[phase].add(sketch.quantile(0.5) / before.quantile(0.5), num_recent);
    if (num_recent >= kFewestRecentP99) p99s[phase].add(sketch.quantile(0.99) / before.quantile(0.99), num_recent);
  }
  for (std::size_t phase = 0; phase < drift_.size(); ++phase) {
    drift_[phase].median_ratio = medians[phase].ratio();
    drift_[phase].p99_ratio = p99s[phase].ratio();
    judge(drift_[phase], looks_[phase]);
  }
  return drift_;
}

/// A phase that cannot be told of stays as it is.
void DriftWatch::judge(PhaseDrift& drift, Looks& looks) {
  if (drift.median_ratio == 0) return;
  const bool is_high = drift.median_ratio >= kAlarmMedian || drift.p99_ratio >= kAlarmP99;
  const bool is_low = drift.median_ratio < kCalmMedian && drift.p99_ratio < kCalmP99;
  looks.high = is_high ? looks.high + 1 : 0;
  looks.low = is_low ? looks.low + 1 : 0;
  if (!drift.is_alarmed && looks.high >= kAlarmLooks) {
    drift.is_alarmed = true;
    ++drift.num_alarms;
  }
  if (drift.is_alarmed && looks.low >= kCalmLooks) drift.is_alarmed = false;
}

}  // namespace ferry
