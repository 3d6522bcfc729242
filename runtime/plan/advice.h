#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/plan/step_model.h"

namespace ferry {

/// What a plan comes to for one number of sequences: yes or no on two things that cost memory or machines.
struct PlanAdvice {
  const PlanResult* best = nullptr;  // of these sequences
  std::string balance;  // of what helps most against uneven experts: "--spread", "--redundancy 12.5%"; "" if nothing was tried
  double balance_gain = 0;    // tokens/s of decode over consecutive slices without copies, as a share
  PlanCase second;            // one coordinator more, of the best configuration
  bool has_second = false;    // if there is one
  bool takes_worker = false;  // whose machine is one of the workers'
  double second_gain = 0;     // as a share
};

/// Gains from which the answer is yes, as `ferry serve --rebalance` has it.
inline constexpr double kPlanGain = 0.05;

/// For each depth and batch the best of `results`, which outlive what is returned, and other cases beside it.
std::vector<PlanAdvice> advise(StepModel& model, std::span<const PlanResult> results);

/// A line each.
std::string advice_text(const PlanAdvice& advice);

}  // namespace ferry
