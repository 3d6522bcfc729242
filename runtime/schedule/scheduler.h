#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/named_token_id.h"
#include "runtime/schedule/account_numbers.h"
#include "runtime/schedule/block_pool.h"
#include "runtime/schedule/chunk_control.h"
#include "runtime/schedule/fair_turns.h"
#include "runtime/schedule/policy.h"
#include "runtime/schedule/prefix_cache.h"
#include "runtime/schedule/step_plan.h"

// Decides which tokens of which sequences a step computes. A pure state machine: no threads, no I/O, no clock (time points
// come in as arguments). The engine's loop:
//
//   const StepPlan& plan = scheduler.plan(now);
//   ... forward plan.entries, choose tokens for each entry with `samples` ...
//   scheduler.commit(plan, choices, now);
//   ... stop strings: scheduler.finish(sequence, FinishReason::kStop, now) ...
//   ... guess what follows: scheduler.propose(sequence, drafts) ...
//   scheduler.note_step(plan, seconds);
//   for (auto& sequence : scheduler.take_finished()) ... send the last event ...
//
// Three promises:
// - The oldest goes on: blocks of the KV cache are shared out in order of seniority, which is that of arrival unless the policy
//   says otherwise (policy.h). Whoever needs some that are not there takes them from the youngest sequence behind it, which is
//   preempted: what its blocks hold is saved and comes back when there is room, or is computed anew if the swap space is full.
//   Nobody is ended for want of memory, and nobody older waits for it while somebody younger is given any.
// - Nobody starves: decode rows come first, and there is always one quantum left, for the oldest prefill or whose turn it is.
// - Exactness: how a request is computed depends neither on its neighbours nor on preemptions (see next_prefill_piece), nor on
//   whether its first tokens were computed for it or for another one before (prefix_cache.h).

namespace ferry {

inline constexpr int64_t kMaxDraftRows = 256;      // of a step, all sequences together: each needs a row of logits
inline constexpr int64_t kMaxPrefillQuantum = 64;  // tokens; the longest piece of the DeltaNet's chunk form

/// Tokens by which every sequence that runs can grow beyond what is known of it before it needs a block that admitting another
/// one took. Each copy of a long sequence to the swap space and back costs as much time as some decode steps: so many of them
/// make it a few percent.
inline constexpr int64_t kGrowthTokens = 64;

/// Limits of the engine, fixed at start.
struct SchedulerOptions {
  int64_t max_running = 16;     // sequences; slots of the recurrent state; >= 1
  int64_t max_waiting = 256;    // requests; >= 1
  int64_t token_budget = 1024;  // rows of a step; >= max_running + prefill_quantum(prefill_chunk)
  int64_t prefill_chunk = 512;  // most tokens of one prompt in a step; 1 ‥ 64 or a multiple of 64
  int64_t num_blocks = 0;       // KV blocks; >= 1
  int64_t num_swap_blocks = 0;  // of the swap space, for what preempted sequences have computed; >= 0
  int64_t block_tokens = 16;    // tokens a block; >= 1
  int64_t max_context = 0;      // tokens of prompt and completion together; >= 1
  std::string memory_for_more;  // for who complains: what would lift max_context, if memory bounds it; else empty
  int64_t vocab_size = 0;       // ids a prompt may use are [0, vocab_size); >= 1
  int64_t max_drafts = 0;       // of a sequence in a step; >= 0
  PolicyOptions policy;
  PrefixCacheOptions prefix_cache;         // whether requests begin with what others have computed
  std::vector<TokenId> stop_token_ids;     // of the checkpoint
  std::vector<NamedTokenId> placeholders;  // ids that stand for pictures and videos, which a prompt without them may not hold
};

/// What load reports show.
struct SchedulerLoad {
  int64_t num_running = 0;      // admitted and not preempted
  int64_t num_waiting = 0;      // queued or preempted
  int64_t num_preempted = 0;    // of those that wait
  int64_t num_preemptions = 0;  // since the start
  int64_t num_lost_slots = 0;   // of these, for a request of a better priority, or of an account with fewer slots
  int64_t num_accounts = 0;     // that have open requests, under SchedulingPolicy::kFair
  int64_t prefill_limit = 0;    // rows of prompts that the next step in which sequences decode may have; 0: no bound
  int64_t num_used_blocks = 0;  // by sequences; those that the prefix cache keeps beside them count as free
  int64_t num_total_blocks = 0;
  int64_t num_used_swap_blocks = 0;
  PrefixCacheLoad prefix_cache;
};

/// Tokens of the unit in which prompts are cut: min(prefill_chunk, 64).
int64_t prefill_quantum(int64_t prefill_chunk);

/// Tokens of the next piece of a prompt of `num_prompt` tokens of which `num_computed` are done, 0 if `budget` rows are too
/// few.
///
/// The DeltaNet's chunk form starts a new piece at the first row of a step and rounds differently for other cuts. So every
/// cut lies on a multiple of the quantum, counted from the prompt's first token; only the prompt's end may lie elsewhere. A
/// step may take several quanta, up to prefill_chunk: the chunk form (whose chunk must divide 64 if prefill_chunk is above
/// 64) cuts at the same places. With prefill_chunk 128 a prompt of 192 tokens is [128][64] or [64][64][64], and both give the
/// same bits.
int64_t next_prefill_piece(int64_t num_prompt, int64_t num_computed, int64_t prefill_chunk, int64_t budget);

/// Tokens of the unit in which prompts are shared: whole quanta, so that a prompt is cut where it begins, and whole blocks.
int64_t prefix_unit_tokens(const SchedulerOptions& options);

/// The longest sequence, prompt and completion together, that can ever run: min(max_context, num_blocks * block_tokens) tokens.
int64_t sequence_capacity(const SchedulerOptions& options);

/// How long a prompt may be and why, for who complains: "at most 511, so that one more fits the limit of 512 (context …)".
std::string allowed_prompt(const SchedulerOptions& options);

/// Throws Error{kInvalidArgument} if `request` could never run: empty prompt, prompt that leaves no room for one token, id
/// outside the vocabulary or standing for a picture that is not there, bad sampling parameters, a priority where the policy
/// knows none. A max_tokens that is larger than the room is fine: add() clips it.
void validate_request(const Request& request, const SchedulerOptions& options);

/// With a prefix cache that has a file, requests wait beside the queue while it is read for them (scheduler_file.cpp).
///
/// Not thread-safe: the engine's thread owns it.
class Scheduler {
 public:
  using TimePoint = Sequence::TimePoint;

  /// Throws Error{kInvalidArgument} that names the option, its value and what is allowed.
  explicit Scheduler(SchedulerOptions options);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Queues a request that passed validate_request; null if the queue is full.
  Sequence* add(Request request, TimePoint arrival);

  /// Marks an open sequence: the next plan drops it.
  void abort(Sequence& sequence);

  /// Drops what was aborted or is late (its memory is free within this call), then fills the step. Without rows when nothing
  /// is open, or only what waits for its media. The plan and its sequences stay valid until the next call; one with rows must
  /// be committed or abandoned by finish_all first.
  const StepPlan& plan(TimePoint now);

  /// The plan's rows were computed and chose tokens; kNoToken (-1) ends its sequence with kError, and nothing that this step
  /// computed for it goes to the prefix cache. Ends sequences at a stop id
  /// or where their grammar lets nothing follow (kStop), or at max_tokens (kLength), which
  /// may be the prompt's end; what was chosen behind that is dropped.
  void commit(const StepPlan& plan, const StepChoices& choices, TimePoint now);

  /// The plan's rows took so long, until the next plan could be made.
  void note_step(const StepPlan& plan, double seconds);

  /// The admitted sequence, oldest first, that waits for its pictures and videos: it holds a slot and no blocks, and nobody
  /// waits for it. Null if there is none.
  Sequence* next_for_media() const;
  /// The embeddings of all of them; the next plan may have its rows.
  void give_media(Sequence& sequence, std::shared_ptr<const EmbeddedMedia> media);

  /// The MTP layer's keys and values of the sequence's first `num_pairs` tokens are in its blocks, and will stay as they are.
  void note_pairs(const Sequence& sequence, int64_t num_pairs);

  /// Whether requests wait for what is read of the prefix cache's file. Others go on beside them.
  bool waits_for_file() const;
  /// The next thing to read of it; nothing if all was asked for.
  std::optional<FileRead> next_file_read();
  /// It was read, or not. Where the bytes go, at once and behind what take_file_writes() gives; nothing if they are of no use.
  std::optional<FileTarget> take_file_read(FileRecordId record, const FileReadResult& result);
  /// What goes to the file because of that.
  std::vector<FileWrite> take_file_writes();
  /// A write of this kind or of a plan is done, or came to nothing.
  void note_file_write(FileRecordId record, int64_t num_bytes, std::optional<FileDrop> why_not);

  /// What may follow the tokens of an open sequence, for its next step to try; at most max_drafts. The scheduler tries fewer
  /// where the sequence may not grow so long, and where a prompt needs the rows.
  void propose(Sequence& sequence, std::span<const TokenId> drafts);

  /// Ends an open sequence between steps: a stop string was found, the client is gone. For one that has ended but was not
  /// taken yet, only the reason is replaced (a stop string in the very last token). The last `num_dropped` of its tokens, all
  /// of the last commit, are behind the stop string and go.
  void finish(Sequence& sequence, FinishReason reason, TimePoint now, int64_t num_dropped = 0);

  /// Ends every open sequence, also in the middle of a step, whose plan is then void.
  void finish_all(FinishReason reason, TimePoint now);

  /// What ended since the last call, each exactly once. Slots and blocks are already free.
  std::vector<std::unique_ptr<Sequence>> take_finished();

  SchedulerLoad load() const;
  /// Aborts if what the prefix cache keeps does not fit together. For tests.
  void check_cache() const;
  const SchedulerOptions& options() const { return options_; }

 private:
  /// What an admitted sequence computes in the step that is planned.
  struct Share {
    int64_t num_tokens = 0;
    int64_t num_drafts = 0;
    bool is_preempted = false;  // by this plan

    int64_t num_rows() const { return num_tokens + num_drafts; }
  };

  void drop_expired(TimePoint now);
  void set_seniority(Sequence& sequence);
  Sequence& queue(std::unique_ptr<Sequence> sequence);
  void admit_seniors(TimePoint now);
  bool takes_from_youngest(const Sequence& sequence) const;
  bool lacks_room(const Sequence& sequence) const;
  void evict_youngest(TimePoint now);
  void share_rows();
  void share_prefill_rows();
  int64_t take_turns(int64_t budget);
  void make_claims(int64_t budget);
  int64_t claim_of(std::size_t idx, int64_t budget, int64_t num_kept);
  int64_t next_piece(const Sequence& sequence, int64_t budget) const;
  int64_t num_tried_drafts(const Sequence& sequence, int64_t room) const;
  bool share_blocks(TimePoint now);
  bool grant_blocks(std::size_t idx, bool may_take, TimePoint now);
  void shrink(std::size_t idx, int64_t num_blocks);
  int64_t room_in(const Sequence& sequence, int64_t num_blocks) const;
  bool try_resume(std::size_t idx, TimePoint now);
  void preempt_behind(std::size_t idx, int64_t num_wanted, TimePoint now);
  void preempt(std::size_t idx, TimePoint now);
  void start_anew(Sequence& sequence);
  void note_preempted(Sequence& sequence, TimePoint now);
  void admit(TimePoint now);
  enum class FileLook : uint8_t { kNothing, kReading, kNoRoom };
  FileLook look_in_file(Sequence& sequence, TimePoint now);
  void end_loads(TimePoint now);
  void end_load(Sequence& sequence);
  void drop_file_writes();
  std::unique_ptr<Sequence> take_waiting(Sequence& sequence);
  Sequence* next_waiting();
  Sequence* next_by_arrival();
  Sequence* next_by_share();
  bool would_take_last_slot(const Sequence& sequence) const;
  int64_t num_running_of(int32_t account) const;
  std::size_t move_to_running(Sequence& sequence, RequestState state, TimePoint now);
  void begin(Sequence& sequence);
  void undo_begin(Sequence& sequence);
  bool may_begin(const Sequence& sequence) const;
  void take_slot(Sequence& sequence);
  int64_t num_available() const { return blocks_.num_free() + blocks_.num_idle(); }
  void take_blocks(int64_t count, Sequence& sequence);
  int64_t num_held_blocks(std::size_t num_sequences);
  int64_t num_blocks_of(int64_t num_tokens) const;
  int64_t num_needed_blocks(const Sequence& sequence, const Share& share) const;
  int64_t num_growth_blocks(std::size_t num_sequences) const;
  int64_t num_growth_blocks_of(const Sequence& sequence) const;
  void add_entries();
  void add_entry(Sequence& sequence, const Share& share);
  void add_snapshots(const Sequence& sequence, const StepEntry& entry);
  void note_beginning(Sequence& sequence);
  void feed_cache(const StepPlan& plan, const StepChoices& choices);
  void append_tokens(Sequence& sequence, std::span<const TokenId> tokens, TimePoint now);
  void append_token(Sequence& sequence, TokenId token, TimePoint now);
  FinishReason reason_to_end(const Sequence& sequence, int64_t num_behind) const;
  void retire(Sequence& sequence, FinishReason reason, TimePoint now);
  void release_all(Sequence& sequence);
  void sweep();
  void renew_seniority();

  const SchedulerOptions options_;
  BlockPool blocks_;
  BlockPool swap_blocks_;
  std::optional<PrefixCache> prefix_cache_;  // of blocks_
  std::vector<bool> is_counted_;             // [num_blocks] for num_held_blocks
  std::vector<int32_t> free_slots_;
  std::deque<std::unique_ptr<Sequence>> waiting_;   // in order of seniority
  std::vector<std::unique_ptr<Sequence>> running_;  // admitted, likewise; behind a preempted one nobody holds blocks
  std::vector<Share> shares_;                       // of each
  std::vector<std::unique_ptr<Sequence>> loading_;  // queued, and behind all that until the file was read for them
  int64_t num_slotless_ = 0;                        // in waiting_, preempted ones
  int64_t prefill_limit_ = 0;                       // rows of prompts that the step planned may have
  int64_t num_added_ = 0, num_admitted_ = 0;
  int64_t num_preemptions_ = 0, num_lost_slots_ = 0;
  std::optional<ChunkControl> chunk_control_;  // where steps have a time to keep

  // Under SchedulingPolicy::kFair:
  AccountNumbers accounts_;                          // of open requests
  FairTurns admissions_;                             // of accounts with equally few slots, by the tokens of their prompts
  FairTurns rows_;                                   // whose prompt gets the step's next rows
  std::vector<int32_t> asking_;                      // accounts of those that ask for either
  std::vector<int64_t> claims_;                      // of running_: tokens that the step planned may compute
  std::vector<std::size_t> first_claims_;            // by account: in running_, all before have what they claimed
  std::vector<Sequence*> first_waiting_;             // by account
  std::vector<int32_t> num_running_of_;              // by account: slots that its requests hold
  std::vector<std::unique_ptr<Sequence>> finished_;  // ended, not yet taken
  StepPlan plan_;
  bool plan_is_open_ = false;  // plan_ has rows and was not committed
};

}  // namespace ferry
