#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/routing/routing_hook.h"
#include "moe/routing/routing_trace.h"

// Recorded routing once more, for sequences that were not there: each token of each takes the place of a recorded row. Which
// one follows from its sequence and its position alone, whatever else is in the step, so a plan and a bench see the same.
//
//   decode    position p reads step p of those that have at least as many rows as half of the decode steps have, r of them;
//             sequence s its row s mod r, and where s >= r from another place in the trace
//   prefill   position p reads row p of all rows of prefill steps, another sequence from another place
//
// Where a trace has rows of one kind only, they stand for the other's, too.

namespace ferry {

class RoutingRows {
 public:
  /// `trace` outlives it and has a step.
  explicit RoutingRows(const RoutingTrace& trace);

  struct Row {
    const RoutingStep* step;
    int64_t row;
  };
  Row row(RoutingPhase phase, int64_t sequence, int64_t position) const;

  /// Adds what tokens [position, position + count) of a sequence bring the experts of `layer` (counted as the shape does) to
  /// `rows` [num_experts]. Looks at each row of the trace at most once, however large `count` is (below 2^31).
  void add_rows(RoutingPhase phase, int64_t sequence, int64_t position, int64_t count, int64_t layer,
                std::span<int32_t> rows) const;
  const RoutingTrace& trace() const { return trace_; }

 private:
  /// Returns whether rows of decode steps stand for those of `phase`.
  bool reads_decode(RoutingPhase phase) const;

  const RoutingTrace& trace_;
  std::vector<const RoutingStep*> decode_;  // those that have enough rows
  int64_t decode_rows_ = 1;                 // of each, at least
  std::vector<const RoutingStep*> prefill_;
  std::vector<int64_t> prefill_ends_;  // rows up to the end of each
};

/// Puts recorded rows in the place of what routers choose.
///
///   replay.begin_step();  replay.add_rows(phase, sequence, position, count);  ...   // in the order of the step's rows
class RoutingReplay final : public RoutingHook {
 public:
  /// `trace` outlives it. Throws kInvalidArgument that names `source` if it has no step.
  RoutingReplay(const RoutingTrace& trace, const std::string& source);

  void begin_step() { rows_of_step_.clear(); }
  void add_rows(RoutingPhase phase, int64_t sequence, int64_t position, int64_t count);
  bool routed(int64_t layer, int64_t first_row, std::span<int32_t> ids) override;

 private:
  RoutingRows rows_;
  std::vector<RoutingRows::Row> rows_of_step_;
};

/// `trace`, if it has a step. Throws kInvalidArgument otherwise.
const RoutingTrace& require_steps(const RoutingTrace& trace, const std::string& source);

}  // namespace ferry
