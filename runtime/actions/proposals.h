#pragma once

#include <functional>
#include <string>
#include <vector>

#include "profiler/report/findings/findings.h"
#include "runtime/actions/plan_replay.h"

namespace ferry {

inline constexpr double kLeastGain = 0.02;  // of the time that an action is about: what is below is not worth a word

/// An action, and the finding that it answers.
struct Proposal {
  std::vector<std::string> answers;  // kinds of findings, the first one that is there has the action
  int32_t rank = -1;                 // of which the finding is, -1: of any
  Finding own{};  // the finding that it stands by where there is none of these; without text: then it is dropped
  Action action;
};

/// What a changed run saves of the capture's steps.
struct Saving {
  double before_s = 0, after_s = 0;  // of the steps that the metric is about
  double all_saved_s = 0;            // of all steps that the replay knows of
  double self_error = 0;             // of the replay of what was captured, as a share
  double noise = 0;                  // of what was captured, as a share
  double doubt = 0;                  // of the saving: by what share of it this kind of prediction may be off

  double share() const { return before_s > 0 ? 1 - after_s / before_s : 0; }
};

/// Sets before, after, saved_* and error_share; `before` is the metric's captured value, in proportion to time (is_rate false)
/// or against it. Whether the action is worth showing: it saves kLeastGain, and more than its error.
bool set_saving(Action& action, double before, bool is_rate, const Saving& saving);

/// The saving over all groups, and the one that gains most; nullptr where none does.
struct GroupSaving {
  const StepGroup* group = nullptr;
  Saving saving;
};
/// Where a group's steps take so many seconds.
GroupSaving find_group_saving(const CaptureReplay& replay, double doubt,
                              const std::function<double(const StepGroup&)>& after_s);
/// Of one configuration against the captured one, by a plan's model.
GroupSaving find_group_saving(const CaptureReplay& replay, PlanReplay& captured, PlanReplay& changed, const PlanCase& c,
                              double doubt);
/// The same of what only makes workers' shares more even: drawn routing may be less even than the steps were, and no more is
/// saved than was lost to that.
GroupSaving find_balance_saving(const CaptureReplay& replay, PlanReplay& model, const PlanCase& c, double doubt);

// Each proposes what it knows of. `replay` has steps.
void propose_ranks(const CaptureReplay& replay, std::vector<Proposal>& proposals);
void propose_experts(const CaptureReplay& replay, const std::vector<Finding>& findings, std::vector<Proposal>& proposals);
void propose_exchange(const CaptureReplay& replay, std::vector<Proposal>& proposals);
void propose_threads(const CaptureReplay& replay, std::vector<Proposal>& proposals);
void propose_width(const CaptureReplay& replay, std::vector<Proposal>& proposals);
void propose_drafts(const CaptureReplay& replay, std::vector<Proposal>& proposals);
void propose_schedule(const CaptureReplay& replay, std::vector<Proposal>& proposals);

}  // namespace ferry
