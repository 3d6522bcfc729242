#include "runtime/schedule/draft_policy.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/base/check.h"

namespace ferry {
namespace {

constexpr double kMemory = 0.9;        // of an arm's sums, a step later
constexpr double kOutlier = 2.0;       // a step that takes so many times the usual was disturbed, and counts as this
constexpr double kEnoughSteps = 1.8;   // forgetting included
constexpr int64_t kTries = 3;          // steps in a row, of which the first is not counted: it makes up for what was put off
constexpr int64_t kShortestWait = 64;  // steps between two trials of a number of drafts
constexpr double kTrialCost = 0.004;   // of the time, for each number that is tried
// In large batches drafts must seem so much better than none: times are noisy, and the best of several noisy ones is less good
// than it seems. In small ones a sequence's record weighs more, and is learnt by drafting alone.
constexpr int64_t kLargeBatch = 16, kVeryLargeBatch = 64;
constexpr double kMargin = 1.05, kVeryLargeMargin = 1.15;

constexpr double kFirstGuess = 0.9, kFirstGuessWeight = 10;  // of a place nobody has tried; the weight in drafts, as the next
constexpr double kOthersWeight = 4;
constexpr double kStepMemory = 0.95;    // what a sequence's sums keep a step later
constexpr double kCommonMemory = 0.98;  // what a place's sums of all sequences keep when a draft more is counted

}  // namespace

DraftPolicy::DraftPolicy(int64_t max_drafts) : max_drafts_(max_drafts), batches_(64) {
  FERRY_CHECK(max_drafts >= 1 && max_drafts <= Speculation::kMaxDrafts) << max_drafts << " drafts";
  for (std::size_t i = batch_idx(kLargeBatch); i < batches_.size(); ++i) {
    batches_[i].margin = i < batch_idx(kVeryLargeBatch) ? kMargin : kVeryLargeMargin;
  }
}

bool DraftPolicy::Arm::is_known() const { return steps >= kEnoughSteps; }

/// Of beginning to try it, in steps.
double DraftPolicy::Arm::start_cost() const { return std::max(0.0, first_seconds / mean() - 1); }

std::size_t DraftPolicy::batch_idx(int64_t num_sequences) {
  FERRY_CHECK_GE(num_sequences, 1);
  return static_cast<std::size_t>(std::bit_width(static_cast<uint64_t>(num_sequences))) - 1;
}

int64_t DraftPolicy::best(const Batch& batch, const ExpectedTokens& tokens) const {
  int64_t best = -1;
  double best_rate = 0;
  for (int64_t k = 0; k <= max_drafts_; ++k) {
    const Arm& arm = batch.arms[static_cast<std::size_t>(k)];
    if (!arm.is_known()) continue;
    const double rate = tokens[static_cast<std::size_t>(k)] / arm.mean();
    if (rate <= best_rate * (best == 0 ? batch.margin : 1)) continue;
    best = k;
    best_rate = rate;
  }
  return best;
}

/// A number of drafts that nothing, or nothing recent, is known of; -1 if none is due.
int64_t DraftPolicy::next_to_try(const Batch& batch, const ExpectedTokens& tokens) const {
  for (const int64_t k : {std::min<int64_t>(2, max_drafts_), int64_t{0}})
    if (!batch.arms[static_cast<std::size_t>(k)].is_known()) return k;
  const int64_t best = this->best(batch, tokens);
  const auto rate = [&](int64_t k) {
    return tokens[static_cast<std::size_t>(k)] / batch.arms[static_cast<std::size_t>(k)].mean();
  };
  for (const int64_t k : {best + 1, best - 1, int64_t{0}}) {
    if (k < 0 || k > max_drafts_ || k == best) continue;
    const Arm& arm = batch.arms[static_cast<std::size_t>(k)];
    if (!arm.is_known()) return k;
    const double loss = kTries * std::max(0.0, 1 - rate(k) / rate(best)) + arm.start_cost();
    const auto wait = std::max(kShortestWait, static_cast<int64_t>(loss / kTrialCost));
    if (batch.num_steps - arm.last_tried >= wait) return k;
  }
  return -1;
}

int64_t DraftPolicy::choose(int64_t num_sequences, const ExpectedTokens& tokens) {
  Batch& batch = batches_[batch_idx(num_sequences)];
  if (batch.num_tries_left == 0) {
    batch.trying = next_to_try(batch, tokens);
    batch.num_tries_left = batch.trying >= 0 ? kTries : 0;
  }
  if (batch.trying < 0) return best(batch, tokens);
  --batch.num_tries_left;
  return batch.trying;
}

void DraftPolicy::observe(int64_t num_sequences, int64_t num_drafts, double seconds) {
  FERRY_CHECK(num_drafts >= 0 && num_drafts <= max_drafts_) << num_drafts << " drafts";
  Batch& batch = batches_[batch_idx(num_sequences)];
  ++batch.num_steps;
  Arm& arm = batch.arms[static_cast<std::size_t>(num_drafts)];
  arm.last_tried = batch.num_steps;
  const bool is_first = std::exchange(last_observed_, num_drafts) != num_drafts;
  if (is_first) arm.first_seconds = seconds;
  if (is_first || seconds <= 0) return;
  if (arm.steps > 0) seconds = std::min(seconds, kOutlier * arm.mean());
  arm.seconds = kMemory * arm.seconds + seconds;
  arm.steps = kMemory * arm.steps + 1;
}

bool DraftPolicy::has_given_up(int64_t num_sequences, int64_t num_drafts) const {
  return num_drafts == 0 && batches_[batch_idx(num_sequences)].trying < 0;
}

double DraftPolicy::break_even(int64_t num_sequences, int64_t num_drafts) const {
  const Batch& batch = batches_[batch_idx(num_sequences)];
  const Arm &plain = batch.arms[0], &arm = batch.arms[static_cast<std::size_t>(num_drafts)];
  if (num_drafts == 0 || batch.trying >= 0 || !plain.is_known() || !arm.is_known()) return 0;
  return std::clamp((arm.mean() / plain.mean() - 1) / static_cast<double>(num_drafts), 0.0, 1.0);
}

void DraftRecord::Place::forget(double memory) {
  tried *= memory;
  right *= memory;
}

void DraftRecord::add(int64_t num_tried, int64_t num_right) {
  if (others_ != nullptr) {
    for (Place& place : places_) place.forget(kStepMemory);
  }
  for (int64_t i = 0; i < std::min(num_tried, num_right + 1); ++i) {
    Place& place = places_[static_cast<std::size_t>(i)];
    if (others_ == nullptr) place.forget(kCommonMemory);
    place.tried += 1;
    place.right += i < num_right ? 1 : 0;
  }
}

/// That a draft at `place` is right if those before it were.
double DraftRecord::probability(int64_t place) const {
  const auto& [tried, right] = places_[static_cast<std::size_t>(place)];
  const double guess = others_ == nullptr ? kFirstGuess : others_->probability(place);
  const double weight = others_ == nullptr ? kFirstGuessWeight : kOthersWeight;
  return (right + weight * guess) / (tried + weight);
}

int64_t DraftRecord::worthwhile(int64_t max_drafts, double probability) const {
  double reached = 1;
  for (int64_t i = 0; i < max_drafts; ++i) {
    reached *= this->probability(i);
    if (reached < probability) return i;
  }
  return max_drafts;
}

double DraftRecord::expected_tokens(int64_t num_drafts) const {
  double tokens = 1, reached = 1;
  for (int64_t i = 0; i < num_drafts; ++i) tokens += reached *= probability(i);
  return tokens;
}

}  // namespace ferry
