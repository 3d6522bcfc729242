#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/placement/placement_types.h"

namespace ferry {

/// Which worker computes which expert of one layer of one step.
struct ExpertChoice {
  static constexpr int32_t kUntouched = -1;  // has no rows
  static constexpr int32_t kNoHolder = -2;   // has rows, and no live worker holds it

  std::vector<int32_t> worker;  // [num_experts] or one of the above
  std::vector<double> load;     // [num_workers] cost of what each was given
  int64_t num_without_holder = 0;
};

/// Chooses a holder for every touched expert so that the fullest worker is least full: whole experts, since each part of a
/// split one has to read all of its weights (arXiv 2512.09277). All with one live holder go there; the others by falling rows,
/// each to the holder that has done with it first; if taking the lowest live holder of each is better, that; then, while the
/// fullest worker is more than kNearEnough times as full as all would be alike, up to kMaxImprovements times a move off it, or
/// where no move helps a chain of them, in which each worker passes one expert on to the next. Ties: the lower expert, the
/// lower worker. The result depends on the touched experts only and on nothing that was chosen before.
///
///   ExpertChooser chooser(256, speeds, {.fixed = 210, .per_row = 13});
///   const ExpertChoice& choice = chooser.choose(rows, holders, live);   // of every layer and step: ~5 us, no allocation
///
/// One thread at a time.
class ExpertChooser {
 public:
  static constexpr int kMaxImprovements = 16;
  static constexpr double kNearEnough = 1.02;

  /// `speeds` [num_workers] relative, > 0; 1 to kMaxWorkers of them. Throws kInvalidArgument for anything else.
  ExpertChooser(int64_t num_experts, std::span<const double> speeds, const ExpertCost& cost);

  /// `rows` [num_experts] of this layer and step, >= 0; `holders` [num_experts]: bit w for worker w; `live`: the workers that
  /// answer. The result is good until the next call.
  const ExpertChoice& choose(std::span<const int32_t> rows, std::span<const uint64_t> holders, uint64_t live);

 private:
  struct Movable {
    uint64_t holders;  // live ones, two or more
    double cost;
    int32_t expert;
  };
  /// A worker that is reached by passing `item` (of movable_; null: the fullest worker, where chains begin) on from `from`.
  struct ChainEnd {
    std::size_t worker;
    const Movable* item;
    std::size_t from;  // in chain_ends_
  };

  void sort_touched(std::span<const int32_t> rows);
  void give_out_movable();
  double least_time(uint64_t live) const;
  std::size_t fullest() const;
  bool move_off(std::size_t from);
  bool pass_on_from(std::size_t from);
  bool extend(std::size_t end, double limit);
  void pass_along(const Movable& last, std::size_t to, std::size_t end);
  void move(const Movable& item, std::size_t to);
  double most_time(std::span<const double> load) const;
  double time_of(std::size_t w, double load) const { return load * time_per_work_[w]; }

  ExpertCost cost_;
  std::vector<double> time_per_work_;  // [num_workers] 1 / speed
  ExpertChoice choice_;
  // Work space of a call.
  std::vector<int32_t> touched_, unsorted_;  // touched experts, by falling rows, then id
  std::vector<Movable> movable_;             // touched experts with several live holders, in the same order
  std::vector<double> first_load_;           // [num_workers] if each goes to its lowest live holder
  std::vector<ChainEnd> chain_ends_;         // of each worker that has been reached one, [num_workers] at most
  uint64_t reached_ = 0;                     // those workers
};

}  // namespace ferry
