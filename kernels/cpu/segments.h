#pragma once

#include <cstdint>

#include "kernels/ops.h"

// How attention within segments is cut into tasks. Included only by files that are compiled once per instruction set.

namespace ferry::FERRY_ISA_NAMESPACE {

/// Rows [first_row, first_row + num_rows) of one head of the segment with the rows [begin, end).
struct SegmentTask {
  int64_t begin, end;
  int64_t head;
  int64_t first_row, num_rows;

  int64_t num_keys() const { return end - begin; }
};

/// Tasks of a call whose pieces of a segment have up to `task_rows` rows.
inline int64_t count_segment_tasks(const SegmentAttentionArgs& args, int64_t task_rows) {
  int64_t count = 0, begin = 0;
  for (const int64_t end : args.segment_ends) {
    count += (end - begin + task_rows - 1) / task_rows;
    begin = end;
  }
  return count * args.num_heads;
}

/// Task `task_idx` in the order segment, head, piece: one head's pieces follow each other and find its keys in the cache.
inline SegmentTask find_segment_task(const SegmentAttentionArgs& args, int64_t task_rows, int64_t task_idx) {
  int64_t begin = 0;
  for (const int64_t end : args.segment_ends) {
    const int64_t num_pieces = (end - begin + task_rows - 1) / task_rows;
    if (task_idx < num_pieces * args.num_heads) {
      const int64_t first_row = begin + task_idx % num_pieces * task_rows;
      const int64_t num_rows = end - first_row < task_rows ? end - first_row : task_rows;
      return {begin, end, task_idx / num_pieces, first_row, num_rows};
    }
    task_idx -= num_pieces * args.num_heads;
    begin = end;
  }
  return {};
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
