#pragma once

#include <cstdint>
#include <vector>

#include "moe/token_dispatcher.h"
#include "runtime/schedule/scheduler.h"
#include "runtime/state/kv_cache.h"
#include "runtime/state/recurrent_state.h"

namespace ferry {

/// What drafting needs of the engine for one step.
struct DraftContext {
  KvCache& kv_cache;
  RecurrentState& recurrent_state;
  TokenDispatcher& dispatcher;
};

/// What guessing took.
struct DraftWork {
  int64_t num_rows = 0;       // of all passes
  int64_t num_sequences = 0;  // that got drafts
};

/// Guesses what follows the tokens of sequences. One thread at a time.
class Drafter {
 public:
  virtual ~Drafter() = default;

  /// The plan's rows were just computed: what of them is needed later must be taken now.
  virtual void keep_step(const StepPlan&) {}
  /// Its tokens were chosen, `seconds` after the step began.
  virtual void note_step(const StepPlan&, const StepChoices&, double /*seconds*/) {}
  /// The plan was committed: proposes to the scheduler what may follow its sequences that are still open. Throws Error if a
  /// worker is lost.
  virtual DraftWork draft(const StepPlan& plan, Scheduler& scheduler, const DraftContext& context) = 0;
};

/// By prompt lookup (ngram_drafts.h).
class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(int64_t max_drafts);
  DraftWork draft(const StepPlan& plan, Scheduler& scheduler, const DraftContext& context) override;

 private:
  int64_t max_drafts_;
  std::vector<TokenId> drafts_;  // of the sequence that is looked at
};

/// Drafts that the entry's sequence has use for: 0 if it has ended, is in the middle of its prompt, or ends with its next
/// token.
int64_t useful_drafts(const StepEntry& entry, int64_t max_drafts);

}  // namespace ferry
