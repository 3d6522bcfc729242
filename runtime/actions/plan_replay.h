#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "moe/routing/routing_rows.h"
#include "runtime/actions/replay_costs.h"
#include "runtime/actions/step_groups.h"
#include "runtime/plan/step_model.h"

namespace ferry {

/// What is replayed of a capture, made once for all actions.
struct CaptureReplay {
  explicit CaptureReplay(const ReportInput& captured);
  CaptureReplay(const CaptureReplay&) = delete;
  CaptureReplay& operator=(const CaptureReplay&) = delete;

  const ReportInput& input;
  const std::vector<ReplayedStep> steps;
  const std::vector<ExpertCall> calls;
  const std::vector<StepGroup> groups;
  const RoutingTrace routing;
  const std::optional<ReplayCosts> costs;

  /// The value of an option, as the capture or its command line has it; `otherwise` where neither says.
  std::string setting(const std::string& option, const std::string& otherwise = "") const;
  int64_t setting_number(const std::string& option, int64_t otherwise) const;
  double steps_s() const { return steps_s_; }
  /// What choosing so many tokens takes a step that decodes, and handing them out, which takes as long for any number: who
  /// waits for them is woken once.
  double tokens_s(double num_tokens) const { return publish_s_ + num_tokens * token_s_; }

 private:
  double steps_s_ = 0, token_s_ = 0, publish_s_ = 0;
};

/// The captured steps by a plan's model, with the costs of the capture or with others.
class PlanReplay {
 public:
  /// `replay` has costs and outlives it; `hosts` are in the place of the capture's.
  explicit PlanReplay(const CaptureReplay& replay);
  PlanReplay(const CaptureReplay& replay, std::vector<PlanHost> hosts);

  /// Seconds of the group's steps in the configuration, whose sizes are the steps'. Throws Error{kInvalidArgument} for one
  /// that cannot be.
  double seconds(const StepGroup& group, PlanCase c);
  /// Where they go, without guesses and choosing tokens, which take as long in any configuration.
  StepTimes times(const StepGroup& group, PlanCase c);
  /// Of one step that decodes so many rows, without guesses and choosing tokens, and of one that computes so many of a prompt.
  double decode_seconds(PlanCase c, int64_t batch);
  double prefill_seconds(PlanCase c, int64_t rows);
  StepTimes decode_times(PlanCase c, int64_t batch);
  /// In the one that was captured.
  double captured_seconds(const StepGroup& group);
  /// By how much that is off what was captured, as a share.
  double self_error(const StepGroup& group) { return captured_seconds(group) / group.seconds - 1; }

 private:
  const CaptureReplay& replay_;
  const std::vector<PlanHost> hosts_;
  RoutingRows rows_;
  StepModel model_;
};

}  // namespace ferry
