#include "runtime/grammar_masks.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/schedule/token_grammar.h"

namespace ferry {

GrammarMasks::GrammarMasks(int64_t vocab_size) : mask_words_(static_cast<std::size_t>((vocab_size + 31) / 32)) {}

GrammarMasks::~GrammarMasks() {
  finish();
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  news_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void GrammarMasks::begin(const StepPlan& plan) {
  finish();
  row_masks_.clear();
  const auto has_grammar = [](const StepEntry& entry) { return entry.samples && entry.sequence->request.grammar != nullptr; };
  if (std::ranges::none_of(plan.entries, has_grammar)) return;
  std::unique_lock lock(mutex_);
  jobs_.clear();
  std::size_t num_rows = 0, num_words = 0;
  for (const StepEntry& entry : plan.entries) {
    const auto num_logits = static_cast<std::size_t>(entry.num_logits());
    if (has_grammar(entry)) {
      jobs_.push_back({.entry = &entry, .first_row = num_rows, .first_word = num_words});
      num_words += num_logits * mask_words_;
    }
    num_rows += num_logits;
  }
  if (words_.size() < num_words) words_.resize(num_words);
  row_masks_.resize(num_rows);
  next_job_ = num_done_ = 0;
  start_thread();
  lock.unlock();
  news_.notify_one();
}

/// Needs mutex_.
void GrammarMasks::start_thread() {
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {
    return;  // finish() does it all
  }
}

void GrammarMasks::finish() {
  if (jobs_.empty()) return;
  std::unique_lock lock(mutex_);
  while (next_job_ < jobs_.size()) run_next(lock);
  done_.wait(lock, [this] { return num_done_ == jobs_.size(); });
  jobs_.clear();
  next_job_ = num_done_ = 0;
}

void GrammarMasks::work() {
  pthread_setname_np(pthread_self(), "grammar");
  std::unique_lock lock(mutex_);
  while (true) {
    news_.wait(lock, [this] { return stop_ || next_job_ < jobs_.size(); });
    if (stop_) return;
    run_next(lock);
  }
}

void GrammarMasks::run_next(std::unique_lock<std::mutex>& lock) {
  const Job& job = jobs_[next_job_++];
  lock.unlock();
  fill(job);
  lock.lock();
  if (++num_done_ == jobs_.size()) done_.notify_all();
}

void GrammarMasks::fill(const Job& job) {
  try {
    fill_rows(job);
  } catch (const Error& error) {
    job.entry->sequence->sampled.failure = error;
  } catch (const std::exception& error) {
    job.entry->sequence->sampled.failure =
        Error(ErrorCode::kInternal, "the request's grammar failed: " + one_line(error.what()));
  }
}

/// Rows behind a draft that the grammar refuses get none: that draft is not chosen.
void GrammarMasks::fill_rows(const Job& job) {
  const Sequence& sequence = *job.entry->sequence;
  TokenGrammar& grammar = *sequence.request.grammar;
  int64_t num_accepted = 0;
  while (true) {
    const auto row = static_cast<std::size_t>(num_accepted);
    const auto words = std::span(words_).subspan(job.first_word + row * mask_words_, mask_words_);
    if (grammar.fill_mask(words)) row_masks_[job.first_row + row] = words;
    if (num_accepted == job.entry->num_drafts || !grammar.accept(sequence.drafts[row])) break;
    ++num_accepted;
    if (grammar.is_terminated()) break;
  }
  if (num_accepted > 0) grammar.rollback(num_accepted);
}

}  // namespace ferry
