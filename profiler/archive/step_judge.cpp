#include "profiler/archive/step_judge.h"

#include <algorithm>

namespace ferry {
namespace {

constexpr int64_t kHourSeconds = 3600;  // seconds

}  // namespace

StepJudge::Like& StepJudge::like(const StepKind& kind) {
  const auto hash = static_cast<uint32_t>(kind.phase) * 97U + kind.rows * 31U + kind.keys * 7U;
  Like& found = likes_[hash % likes_.size()];
  if (found.kind != kind) found = {.kind = kind};
  return found;
}

void StepJudge::add(Like& like, double seconds) {
  like.lengths[like.num_added++ % kWindow] = static_cast<float>(seconds);
  if (like.num_added < kFewest || like.num_added % (kFewest / 2) != 0) return;
  std::array<float, kWindow> sorted = like.lengths;
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(like.num_added, kWindow));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  like.median = *middle;
}

bool StepJudge::is_slowest(const StepFacts& facts, double median, int64_t now_s) {
  const double seconds = facts.seconds;
  Hour& hour = hours_[static_cast<std::size_t>(facts.phase)];
  if (hour.hour != now_s / kHourSeconds) hour = {.hour = now_s / kHourSeconds};
  const bool is_it =
      ++hour.num_steps > kFewestOfHour && seconds > 1.1 * hour.slowest && median > 0 && seconds > kSlowFactor * median;
  hour.slowest = std::max(hour.slowest, seconds);
  return is_it;
}

bool StepJudge::is_long(double seconds, double median, int64_t now_s) {
  const double excess = seconds - median;
  if (median <= 0 || seconds < kLongFactor * median || excess < kLongAtLeast) return false;
  if (now_s < last_long_s_ + kPauseSeconds && excess < 2 * last_excess_) return false;
  last_long_s_ = now_s;
  last_excess_ = excess;
  return true;
}

std::optional<KeptFor> StepJudge::judge(const StepFacts& facts, int64_t now_s) {
  Like& like_it = like(kind_of(facts));
  const bool is_long_step = is_long(facts.seconds, like_it.median, now_s);
  const bool is_slowest_step = is_slowest(facts, like_it.median, now_s);
  add(like_it, facts.seconds);
  if (is_long_step) return KeptFor::kLong;
  if (is_slowest_step) return KeptFor::kSlow;
  return std::nullopt;
}

}  // namespace ferry
