#include "launch/verify/gain.h"

#include <algorithm>
#include <cmath>

namespace ferry {

namespace {

double noise_of(const Figure& before, const Figure& after) {
  constexpr double kStudent = 2.447;  // two-sided 95 % with 6 degrees of freedom, those of four quarters twice
  return std::max({before.split_share, before.drift_share, after.split_share, after.drift_share,
                   kStudent * std::hypot(before.error_share, after.error_share)});
}

}  // namespace

bool Gain::is_certain() const {
  return has_interval && (low > 0 || high < 0) && std::abs(share) > noise_share && !is_contradicted();
}

double gain_share(double before, double after, bool more_is_better) {
  if (before <= 0) return 0;
  return more_is_better ? after / before - 1 : 1 - after / before;
}

Gain measure_gain(const Figure& before, const Figure& after) {
  const RankTest test = rank_test(before.samples, after.samples);
  Gain gain{.before = before.value(),
            .after = after.value(),
            .share = gain_share(1, test.ratio, before.more_is_better),
            .has_interval = test.has_interval,
            .p = test.p,
            .noise_share = noise_of(before, after)};
  if (!test.has_interval) return gain;
  gain.low = gain_share(1, before.more_is_better ? test.low : test.high, before.more_is_better);
  gain.high = gain_share(1, before.more_is_better ? test.high : test.low, before.more_is_better);
  return gain;
}

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kCame: return "came";
    case Verdict::kCameInPart: return "came in part";
    case Verdict::kDidNotCome: return "did not come";
    case Verdict::kCannotBeTold: break;
  }
  return "cannot be told";
}

Verdict judge_gain(double predicted_share, const Gain& gain) {
  if (!gain.has_interval || predicted_share <= 0) return Verdict::kCannotBeTold;
  if (gain.is_certain()) {
    if (gain.share >= kWhole * predicted_share) return Verdict::kCame;
    return gain.share >= kPart * predicted_share ? Verdict::kCameInPart : Verdict::kDidNotCome;
  }
  const bool noise_hides_it = gain.noise_share >= kWhole * predicted_share;
  return gain.high < kPart * predicted_share && !noise_hides_it ? Verdict::kDidNotCome : Verdict::kCannotBeTold;
}

}  // namespace ferry
