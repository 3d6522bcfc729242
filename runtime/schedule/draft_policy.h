#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/schedule/speculation.h"

namespace ferry {

/// Of one sequence, or of all: how often the drafts at each place were right, of those that were reached.
///
/// A place that seems not worth its row is not tried, and then nothing more is learnt of it. So a record is hopeful: what was
/// seen counts against a first guess, which is high, or against what the others' record says. And what a sequence saw is
/// forgotten as its steps pass, tried or not, so that bad luck at a text's beginning does not outlast it.
class DraftRecord {
 public:
  /// Of all sequences.
  DraftRecord() = default;
  /// Of one, which is expected to be like `others` until it shows otherwise; they outlive it.
  explicit DraftRecord(const DraftRecord* others) : others_(others) {}

  /// A step in which `num_right` of `num_tried` drafts were right.
  void add(int64_t num_tried, int64_t num_right);
  /// The most drafts, up to `max_drafts`, of which each is right with at least `probability`.
  int64_t worthwhile(int64_t max_drafts, double probability) const;
  /// Tokens to expect of a step with `num_drafts` drafts: 1 ‥ 1 + num_drafts.
  double expected_tokens(int64_t num_drafts) const;

 private:
  /// Sums that forget.
  struct Place {
    double tried = 0, right = 0;
    void forget(double memory);
  };
  double probability(int64_t place) const;

  const DraftRecord* others_ = nullptr;
  std::array<Place, Speculation::kMaxDrafts> places_{};
};

/// How many drafts a step should try. What a verified row costs depends on the weights' width, the experts that it touches, the
/// ranks and the machine, so the policy knows times that were measured, apart for each size of the batch, and compares the
/// tokens per second that its sequences' records promise. Other numbers than the best are tried anew from time to time, the
/// more rarely the worse they seem and the more it takes to begin, so that trying costs about one per cent. Pure: no clock.
class DraftPolicy {
 public:
  /// Tokens that the batch is expected to gain in a step with so many drafts for each sequence.
  using ExpectedTokens = std::array<double, Speculation::kMaxDrafts + 1>;

  /// `max_drafts` 1 ‥ Speculation::kMaxDrafts.
  explicit DraftPolicy(int64_t max_drafts);

  /// Drafts for each of `num_sequences` >= 1 sequences that decode in the next step: 0 ‥ max_drafts.
  int64_t choose(int64_t num_sequences, const ExpectedTokens& tokens);
  /// A step of `num_sequences` sequences that only decoded, with `num_drafts` as choose() said, took `seconds`, the time to
  /// guess its drafts included. Sequences may have had fewer, where a draft was not worth it or had no room.
  void observe(int64_t num_sequences, int64_t num_drafts, double seconds);

  /// Whether choose() has found for such a batch, and not on trial, that no drafts are best.
  bool has_given_up(int64_t num_sequences, int64_t num_drafts) const;

  /// The probability of being right from which on a draft is worth its row, as measured for such a batch with the `num_drafts`
  /// that choose() said; 0 if unknown, or where the number is on trial.
  double break_even(int64_t num_sequences, int64_t num_drafts) const;

 private:
  /// One number of drafts. Sums forget older steps.
  struct Arm {
    double seconds = 0, steps = 0;
    double first_seconds = 0;  // of the last step that was its first in a row, which is not in the sums
    int64_t last_tried = 0;    // of the batch's steps
    bool is_known() const;
    double mean() const { return seconds / steps; }
    double start_cost() const;
  };
  struct Batch {
    std::array<Arm, Speculation::kMaxDrafts + 1> arms;
    double margin = 1;  // by which drafts must seem better than none
    int64_t num_steps = 0;
    int64_t trying = -1, num_tries_left = 0;
  };

  static std::size_t batch_idx(int64_t num_sequences);
  int64_t best(const Batch& batch, const ExpectedTokens& tokens) const;
  int64_t next_to_try(const Batch& batch, const ExpectedTokens& tokens) const;

  int64_t max_drafts_;
  std::vector<Batch> batches_;  // by the number of binary digits of the number of sequences
  int64_t last_observed_ = -1;  // drafts
};

}  // namespace ferry
