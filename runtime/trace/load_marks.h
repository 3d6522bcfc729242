#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "moe/expert_load.h"

namespace ferry {

/// How many rows each expert had been given at moments between steps, so that the rows of the last steps can be told from those
/// since the start. Memory is bounded: where marks of every step do not fit, they are set every second, fourth, … step. Used by
/// the thread that steps; allocates at construction only.
class LoadMarks {
 public:
  struct Mark {
    uint64_t ticks = 0;
    std::span<const int64_t> tokens;  // [num_layers * num_experts] since the start, valid until the next note()
  };

  /// The first mark is now.
  explicit LoadMarks(const ExpertLoad& load, int64_t max_bytes = int64_t{4} << 20);

  /// After a step. Marks before `held_since` (ticks) are given up first.
  void note(const ExpertLoad& load, uint64_t held_since);

  /// The oldest mark not before `ticks`; the newest if there is none.
  Mark first_from(uint64_t ticks) const;

 private:
  struct Place {
    uint64_t ticks;
    std::size_t slot;
  };

  void make_room(uint64_t held_since);
  void set(const ExpertLoad& load);

  const std::size_t num_counts_;
  const std::size_t capacity_;
  std::unique_ptr<int64_t[]> counts_;  // [capacity, num_counts]
  std::vector<Place> marks_;           // oldest first
  std::vector<std::size_t> free_;      // slots
  int64_t spacing_ = 1;                // steps between marks
  int64_t steps_since_ = 0;            // the last mark
};

}  // namespace ferry
