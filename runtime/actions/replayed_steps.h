#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiler/report/timeline/report_input.h"

// A capture's steps as what a replay counts with: how much work each had, and what parts of it took.

namespace ferry {

/// Where the time of a step of the coordinator goes, seconds; they add up to it.
struct StepParts {
  double own = 0;       // norms, mixers, router, scheduling, and what no span explains
  double shared = 0;    // the shared expert
  double head = 0;      // embedding, lm_head
  double sample = 0;    // choosing tokens, by their number, and handing them out, once
  double draft = 0;     // guessing what follows, whatever is in it
  double experts = 0;   // routed experts, where the coordinator computes them
  double exchange = 0;  // sending rows, waiting, taking replies in

  double sum() const { return own + shared + head + sample + draft + experts + exchange; }
  void add(const StepParts& other, double weight = 1);
};

/// Which of the parts a zone of the coordinator's belongs to.
double StepParts::*part_of(Zone zone, bool has_workers);

/// One of timeline.steps.
struct ReplayedStep {
  std::size_t index = 0;   // into timeline.steps
  double decode_rows = 0;  // of sequences that decode, drafts among them
  double prefill_rows = 0;
  double sequences = 0;  // that decode
  double row_keys = 0;   // sum over its rows of the keys that each sees, of one attention layer; 0 if not recorded
  StepParts parts;       // as they were
  StepParts quiet;       // were every operator as fast as the first quarter of its like: without what disturbed the others
  // Of `parts`, what few rows more do not make longer: operators that read weights, as far as the capture says which do, and
  // what a step takes once: handing tokens to those who wait for them, and what no operator explains.
  StepParts weights, once;
  double keys = 0;        // of `parts.own`, reading what sequences look back on
  double guess_keys = 0;  // what `keys` would be with one row of each sequence, by the layer that guesses; 0: nobody guessed

  double rows() const { return decode_rows + prefill_rows; }
};

/// All steps, in order.
std::vector<ReplayedStep> replay_steps(const ReportInput& input);

/// What one call of a rank's experts took.
struct ExpertCall {
  std::size_t step = 0;  // index into timeline.steps
  int32_t rank = 0;
  int32_t layer = 0;
  double rows = 0;
  double touched = 0;  // experts that had any
  double seconds = 0;  // that the rank was busy with it: of a worker from the rows' arrival to its reply
  double quiet = 0;    // of its operators alone, as StepParts has it
  ExchangeId id;
};

/// By rank and time, without those of the layer that guesses, whose weights still lie in caches when it comes to its next
/// guess. Empty where operators were not recorded.
std::vector<ExpertCall> find_expert_calls(const ReportInput& input);

}  // namespace ferry
