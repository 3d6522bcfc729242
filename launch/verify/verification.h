#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/verify/gain.h"
#include "launch/verify/option_changes.h"
#include "launch/verify/same_work.h"
#include "launch/verify/shares.h"
#include "profiler/report/findings/action.h"
#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// Two captures of the same work held against each other, and against what the first one's actions predicted.
struct Verification {
  struct FigureGain {
    std::string name;
    bool more_is_better = true;
    Gain gain;
  };
  struct ActionResult {
    Action action;
    bool was_tried = false;        // the option now has the value that it was to get
    std::string tried;             // which value it has instead
    double predicted = 0;          // gain as a share of the figure, above 0 where it gets better
    double predicted_error = 0;    // by which that may be off, a share of the figure as well; 0: not told
    std::optional<Gain> measured;  // nothing: not tried, or a capture lacks the figure
    Verdict verdict = Verdict::kCannotBeTold;
    bool may_be_machine = false;  // the verdict would be another one, had the machine not been faster or slower itself
    TimeDifference difference;    // of the figure's steps

    /// Whether what was measured lies beyond what the prediction said that it may be off by.
    bool is_outside() const;
  };
  std::vector<std::string> warnings;
  MachineChange machine;
  std::vector<OptionChange> changes;
  std::vector<FigureGain> figures;  // that both captures have, in the order of the first
  std::vector<ActionResult> actions;
  TimeDifference difference;  // of all steps that are in figures

  /// 0: every action that was tried came, at least in part; 1: one did not; 3: one cannot be told, or none was tried.
  int exit_code() const;
};

/// `actions` are those of `before`. Throws Error{kInvalidArgument} for captures of different models or work (same_work.h), and
/// of work that has no figure in common.
Verification verify(const ReportInput& before, const ReportInput& after, std::span<const Action> actions);

std::vector<std::string> verification_lines(const Verification& verification);
nlohmann::ordered_json verification_json(const Verification& verification);

}  // namespace ferry
