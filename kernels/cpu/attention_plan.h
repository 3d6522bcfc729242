#pragma once

#include <cstdint>

#include "kernels/cpu/scratch.h"
#include "kernels/ops.h"

// How attention over the paged cache is cut into tasks where a long past may be shared by several threads. Rows of one
// sequence whose heads share a key head are a group, which reads each key once for all of them. Keys are taken in splits,
// counted from position 0: a row's result is the fold of what it has of each split, in ascending order. A task is a group's
// way through all splits; or, of a group that would keep the others waiting, one of its splits, and the folds come after.
// Which of the two it is changes no bit. Included only by files that are compiled once per instruction set.

namespace ferry::FERRY_ISA_NAMESPACE {

constexpr int64_t kSplitKeys = 2048;     // a multiple of what units take between two updates of the maximum
constexpr int64_t kPieceRows = 32;       // rows that have their results of a split in one place, a part; a group's are in order
constexpr int64_t kLeastGroupRows = 32;  // of groups that are made smaller for the sake of many threads
constexpr int64_t kMostSplitRows = 128;  // of groups whose splits are tasks
constexpr int64_t kMostParts = 1024;     // that are kept until the folds: 36 MB with heads of 256

/// Rows [first_row, first_row + num_rows) of the (token, head) pairs of one sequence and key head, tokens outermost.
struct RowGroup {
  int32_t sequence_idx;
  int32_t kv_head;
  int64_t first_row;
  int64_t num_rows;
  int64_t num_keys;  // that its last row sees
  int64_t num_splits;
  int64_t first_part = -1;  // of num_splits for each piece; -1: one task takes them all

  int64_t num_parts() const { return (num_rows + kPieceRows - 1) / kPieceRows * num_splits; }
};

/// All splits of a group, or the one called `split`.
struct GroupTask {
  int32_t group_idx;
  int32_t split;  // -1: all
};

/// The fold of one piece's parts.
struct PieceFold {
  int32_t group_idx;
  int32_t piece;
};

/// Calls fn(group) in the order sequence, rows (last first: they see the most keys), key head.
template <class Fn>
void for_each_group(const AttentionArgs& args, int64_t group_rows, Fn fn) {
  const int64_t num_heads = args.num_heads / args.cache.num_kv_heads;
  for (std::size_t s = 0; s < args.sequences.size(); ++s) {
    const SequenceSpan& sequence = args.sequences[s];
    const int64_t all_rows = sequence.num_tokens * num_heads;
    for (int64_t end = (all_rows + group_rows - 1) / group_rows * group_rows; end > 0; end -= group_rows) {
      RowGroup group{.sequence_idx = static_cast<int32_t>(s)};
      group.first_row = end - group_rows;
      group.num_rows = (end < all_rows ? end : all_rows) - group.first_row;
      group.num_keys = sequence.num_past + (group.first_row + group.num_rows - 1) / num_heads + 1;
      group.num_splits = (group.num_keys + kSplitKeys - 1) / kSplitKeys;
      for (; group.kv_head < args.cache.num_kv_heads; ++group.kv_head) fn(group);
    }
  }
}

/// The groups and tasks of a call, in memory of the calling thread, with room for what splits come to.
class AttentionPlan {
 public:
  /// A group has at most `group_rows` rows, a power of two times kLeastGroupRows; `part_floats` is the size of a part.
  AttentionPlan(const AttentionArgs& args, int num_threads, int64_t group_rows, int64_t part_floats)
      : num_threads_(num_threads), part_floats_(part_floats) {
    while (group_rows > kLeastGroupRows && most_tasks(args, group_rows) < 2 * num_threads) group_rows /= 2;
    for_each_group(args, group_rows, [&](const RowGroup& group) { all_keys_ += cost(group); });
    int64_t num_groups = 0, num_parts = 0;
    for_each_group(args, group_rows, [&](const RowGroup& group) {
      ++num_groups;
      num_parts += is_split(group, num_parts) ? group.num_parts() : 0;
    });
    allocate(num_groups, num_parts);
    for_each_group(args, group_rows, [&](const RowGroup& group) { add(group); });
  }

  int64_t num_tasks() const { return num_tasks_; }
  int64_t num_folds() const { return num_folds_; }
  const GroupTask& task(int64_t task_idx) const { return tasks_[task_idx]; }
  /// Of the groups whose splits are tasks.
  const PieceFold& fold(int64_t fold_idx) const { return folds_[fold_idx]; }
  template <class Part>
  const RowGroup& group_of(const Part& part) const {
    return groups_[part.group_idx];
  }
  float* part(const RowGroup& group, int64_t piece, int64_t split) const {
    return parts_ + (group.first_part + piece * group.num_splits + split) * part_floats_;
  }

 private:
  /// Tasks that there are if every group that may be split is.
  static int64_t most_tasks(const AttentionArgs& args, int64_t group_rows) {
    int64_t count = 0;
    for_each_group(args, group_rows,
                   [&](const RowGroup& group) { count += group.num_rows <= kMostSplitRows ? group.num_splits : 1; });
    return count;
  }
  static int64_t cost(const RowGroup& group) { return round_up_16(group.num_rows) * group.num_keys; }
  bool is_split(const RowGroup& group, int64_t num_parts) const {
    return num_threads_ > 1 && group.num_splits > 1 && group.num_rows <= kMostSplitRows &&
           cost(group) * 4 * num_threads_ > all_keys_ && num_parts + group.num_parts() <= kMostParts;
  }
  void allocate(int64_t num_groups, int64_t num_parts) {
    const auto floats_of = [](int64_t bytes) { return round_up_16((bytes + 3) / 4); };
    const int64_t group_floats = floats_of(num_groups * static_cast<int64_t>(sizeof(RowGroup)));
    const int64_t task_floats = floats_of((num_groups + num_parts) * static_cast<int64_t>(sizeof(GroupTask)));
    const int64_t fold_floats = floats_of(num_parts * static_cast<int64_t>(sizeof(PieceFold)));
    float* memory = thread_scratch(num_parts * part_floats_ + group_floats + task_floats + fold_floats, Scratch::kParts);
    parts_ = memory;
    memory += num_parts * part_floats_;
    groups_ = reinterpret_cast<RowGroup*>(memory);
    tasks_ = reinterpret_cast<GroupTask*>(memory + group_floats);
    folds_ = reinterpret_cast<PieceFold*>(memory + group_floats + task_floats);
  }
  void add(RowGroup group) {
    const auto group_idx = static_cast<int32_t>(num_groups_++);
    if (is_split(group, num_parts_)) {
      group.first_part = num_parts_;
      num_parts_ += group.num_parts();
      for (int32_t split = 0; split < group.num_splits; ++split) tasks_[num_tasks_++] = {group_idx, split};
      const auto num_pieces = static_cast<int32_t>(group.num_parts() / group.num_splits);
      for (int32_t piece = 0; piece < num_pieces; ++piece) folds_[num_folds_++] = {group_idx, piece};
    } else {
      tasks_[num_tasks_++] = {group_idx, -1};
    }
    groups_[group_idx] = group;
  }

  int num_threads_;
  int64_t part_floats_;
  int64_t all_keys_ = 0;  // of all rows, as padded
  int64_t num_groups_ = 0, num_tasks_ = 0, num_folds_ = 0, num_parts_ = 0;
  RowGroup* groups_ = nullptr;
  GroupTask* tasks_ = nullptr;
  PieceFold* folds_ = nullptr;
  float* parts_ = nullptr;
};

}  // namespace ferry::FERRY_ISA_NAMESPACE
