#pragma once

#include <array>
#include <cstdint>

#include "runtime/schedule/speculation.h"

namespace ferry {

/// What became of drafts since the start.
struct DraftCount {
  int64_t sequence_steps = 0;                            // decode steps, each counted for every sequence in it
  int64_t tokens = 0;                                    // that they gave
  std::array<int64_t, Speculation::kMaxDrafts> tried{};  // by place: the first draft, the second, …
  std::array<int64_t, Speculation::kMaxDrafts> right{};

  /// A sequence's step tried `num_tried` drafts, of which the first `num_right` were right.
  void add(int64_t num_tried, int64_t num_right) {
    ++sequence_steps;
    tokens += 1 + num_right;
    for (int64_t i = 0; i < num_tried; ++i) ++tried[static_cast<std::size_t>(i)];
    for (int64_t i = 0; i < num_right; ++i) ++right[static_cast<std::size_t>(i)];
  }
  DraftCount& operator+=(const DraftCount& other) {
    sequence_steps += other.sequence_steps;
    tokens += other.tokens;
    for (std::size_t i = 0; i < tried.size(); ++i) {
      tried[i] += other.tried[i];
      right[i] += other.right[i];
    }
    return *this;
  }
  /// Of a sequence; 1 without any.
  double tokens_per_step() const {
    return sequence_steps > 0 ? static_cast<double>(tokens) / static_cast<double>(sequence_steps) : 1;
  }
};

/// Where the time of steps went, in seconds since the start.
struct DraftTime {
  double steps = 0;     // of all that have run, guessing included
  double drafting = 0;  // of that, guessing: the MTP layer's passes, what they make up for included
  double wasted = 0;    // of the rest, for drafts that were wrong: each step's time by the share of such rows among all of its

  void add(double step_seconds, double draft_seconds, int64_t num_rows, int64_t num_wrong) {
    steps += step_seconds;
    drafting += draft_seconds;
    wasted += (step_seconds - draft_seconds) * static_cast<double>(num_wrong) / static_cast<double>(num_rows);
  }
};

}  // namespace ferry
