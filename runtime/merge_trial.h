#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "comm/op.h"

namespace ferry {

/// Whether it pays that rows of several coordinators wait for each other at this worker. Where its experts bound them all it
/// does: an expert is read once for all. Where the coordinators' own work does, the worker idles while they do it in step. So
/// both are tried in turn, for a few steps each, tokens a second are counted, and what was better stays for a while.
///
/// Steps are those of the source with the lowest number, whose blocks of kBlock steps are the same for every worker: all try
/// the same at the same time. One thread.
class MergeTrial {
 public:
  static constexpr int64_t kBlock = 16;       // steps of one way, of which the first kSettle do not count
  static constexpr int64_t kSettle = 4;       // until sources have found each other
  static constexpr int64_t kTrialBlocks = 4;  // off, on, off, on
  static constexpr int64_t kLeastStay = 256;  // steps for which what was better stays; twice that with each trial that agrees
  static constexpr int64_t kMostStay = 1 << 14;

  /// Rows of a new step of `source` have come, of `num_tokens` sequences that decode.
  void note_step(int source, int64_t step, int64_t num_tokens, Deadline now);
  /// A source has gone.
  void forget(int source);

  /// Whether to wait, at this step.
  bool is_on() const { return is_trying_ ? is_on_in(block_) : is_better_; }

 private:
  /// Of one way: what was answered in how long.
  struct Count {
    double tokens = 0, seconds = 0;
    double rate() const { return seconds > 0 ? tokens / seconds : 0; }
  };
  static bool is_on_in(int64_t block) { return block % 2 == 1; }

  void begin_block(int64_t block, int64_t step, Deadline now);
  bool all_were_there() const;
  void decide(int64_t step);

  std::map<int, int64_t> steps_;  // of each source, in this block
  int64_t block_ = -1;            // of the lowest source
  bool is_counting_ = false;
  Deadline counted_since_{};
  double tokens_ = 0;          // since then
  std::array<Count, 2> ways_;  // off, on; of this trial
  int64_t blocks_tried_ = 0;
  bool is_trying_ = false;
  bool is_better_ = false;
  int64_t next_trial_ = 0;  // the step from which one may begin
  int64_t stay_ = kLeastStay;
};

}  // namespace ferry
