#pragma once

#include <functional>
#include <span>

#include "runtime/actions/replayed_steps.h"
#include "runtime/plan/curve.h"

namespace ferry {

/// How long a step takes, by how many rows decode in it and how many are of prompts. Of a capture: steps of one kind as curves
/// over their rows, mixed ones as what prompts take and what the rows that decode add to a step of that many: experts that both
/// ask for are read once.
class StepClock {
 public:
  /// What a plan says that a step of so many rows takes, seconds: of the rows of prompts, or of sequences that decode.
  using Plan = std::function<double(double rows, bool is_decode)>;

  /// `gap_s` is added to every step: what lies between two of them. `least_row_s` is what a prompt's row takes at least, where
  /// steps of one size do not tell that from what a step takes once. Steps of more rows than any that was seen take as many
  /// times as long as the largest one as `plan` says, where there is a plan: lines through few rows know nothing of experts
  /// that all are touched by more. It is asked for here alone.
  StepClock(std::span<const ReplayedStep> steps, double gap_s, double least_row_s = 0, const Plan& plan = {});

  /// Of so many sequences that decode, each with as many rows as they had on average: drafts may be among them.
  double seconds(double num_decoding, double prefill_rows) const;

 private:
  Curve decode_, prefill_;
  bool has_prefill_ = true;  // else a prompt's rows take what as many that decode do
  double mixed_factor_ = 1;  // measured mixed steps over what this predicts of them
  double rows_per_sequence_ = 1;
  double gap_s_;

  double of_rows(double decode_rows, double prefill_rows) const;
};

}  // namespace ferry
