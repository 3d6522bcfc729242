#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runtime/schedule/step_plan.h"

namespace ferry {

/// Masks of a step's rows whose sequences have a grammar, computed on a thread of its own while the forward pass runs:
///
///   masks.begin(plan);
///   ... forward ...
///   masks.finish();
///   use(masks.of_row(0));
///
/// Who finishes helps with those that nobody has begun, so that a thread which gets no core, or which the system does not give,
/// costs time alone. Rows are counted as those of the logits: of the plan's entries that sample, in order. Without grammars
/// nothing is started, locked or allocated; the thread starts with the first one. Memory: vocab / 8 bytes for each row with a
/// grammar of the largest step so far.
class GrammarMasks {
 public:
  /// `vocab_size`: columns of the logits.
  explicit GrammarMasks(int64_t vocab_size);
  /// Finishes.
  ~GrammarMasks();
  GrammarMasks(const GrammarMasks&) = delete;
  GrammarMasks& operator=(const GrammarMasks&) = delete;

  /// Finishes the last plan's masks and starts to fill those of `plan`, whose sequences stay until finish().
  void begin(const StepPlan& plan);
  /// Returns when they are filled.
  void finish();

  /// Of a row of the finished step: which ids may be chosen (token_grammar.h); empty: all.
  std::span<const uint32_t> of_row(int64_t row) const {
    return row_masks_.empty() ? std::span<const uint32_t>() : row_masks_[static_cast<std::size_t>(row)];
  }

 private:
  /// The rows of an entry.
  struct Job {
    const StepEntry* entry;
    std::size_t first_row;   // of row_masks_
    std::size_t first_word;  // of words_
  };

  void start_thread();
  void work();
  void run_next(std::unique_lock<std::mutex>& lock);
  void fill(const Job& job);
  void fill_rows(const Job& job);

  const std::size_t mask_words_;
  std::vector<Job> jobs_;                             // of the plan
  std::vector<uint32_t> words_;                       // [rows of the jobs, mask_words_]
  std::vector<std::span<const uint32_t>> row_masks_;  // of each row; empty if no sequence has a grammar

  std::mutex mutex_;  // guards what follows
  std::condition_variable news_, done_;
  std::size_t next_job_ = 0;
  std::size_t num_done_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ferry
