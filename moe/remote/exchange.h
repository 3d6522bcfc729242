#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "comm/op.h"
#include "kernels/host_rows.h"
#include "moe/permutation.h"
#include "moe/token_dispatcher.h"
#include "moe/wire.h"
#include "runtime/base/aligned_buffer.h"

// A dispatch on its way: which rows went where, and what has come of it.

namespace ferry {

/// Where requests leave from and replies arrive. It stays untouched until everything in it is answered for, which may be after
/// the dispatch that it was for is over.
struct ExchangeBuffers {
  AlignedBuffer requests;
  Mirror<std::byte> replies;
};

/// One worker's part of a wave, or this rank's.
struct Exchange {
  enum class State : uint8_t {
    kNone,  // nobody was asked
    kOpen,  // asked, not answered
    kDone,  // answered
    kLost,  // will never be answered
  };
  State state = State::kNone;
  int32_t worker = -1;  // index in the placement; the number of workers: this rank
  WireHeader header;
  ExchangeBuffers* buffers = nullptr;  // that the two below are in
  std::span<std::byte> request, reply;
  MatrixView rows;  // what was computed, where the backend reads it
  std::unique_ptr<PendingOp> send, receive;
  uint64_t posted_ticks = 0;  // when both were
  Deadline posted;
  double cost = 0;           // of its rows (ExpertCost, as it was at first)
  int64_t num_touched = 0;   // experts that have any
  int cover = -1;            // the wave that asks others for the same rows, if one does
  bool is_alone = false;     // it is late, and no other healthy worker holds all that it was asked for
  bool is_given_up = false;  // nor can it be computed here
  bool is_finite = true;     // false: values of its reply are not, as was seen before a device got them
};

/// Requests that went out together: the first of a dispatch, or those that stand in for an exchange of one before.
struct Wave {
  const Exchange* of = nullptr;  // what it stands in for, and in which wave that is
  const Wave* of_wave = nullptr;
  DispatchPlan plan;                         // a slot's rank_idx is an index in `exchanges`
  std::unique_ptr<ExchangeBuffers> buffers;  // before the exchanges, which use them
  Matrix here;                               // this rank's results
  std::vector<Exchange> exchanges;           // [num_workers + 1], the last one is this rank's

  /// Whether its rows are needed: nothing that it stands in for was answered after all.
  bool is_needed() const { return of == nullptr || (of->state != Exchange::State::kDone && of_wave->is_needed()); }
};

/// Where a (token, k) has its row once everything is answered for.
struct FoundRow {
  const Exchange* exchange;
  int32_t row;
};

/// One dispatch between dispatch() and combine().
class Flight {
 public:
  bool is_open = false;
  DispatchArgs args;
  std::vector<int32_t> topk_idx;  // [num_tokens * top_k], as args has it
  Deadline posted;                // when the last request of the first wave was
  std::deque<Wave> waves;         // the first one is always there

  /// Whether the exchange is answered, or every one that stands in for it.
  bool is_answered(const Exchange& exchange) const;
  /// Whether that is so of all.
  bool is_complete() const;
  /// The (token, k) whose rows `exchange` of `wave` was to bring, and kNoExpert elsewhere: [num_tokens * top_k].
  std::vector<int32_t> experts_of(const Wave& wave, const Exchange& exchange) const;
  /// Of a complete dispatch: whether find() leads to this exchange.
  static bool counts(const Wave& wave, const Exchange& exchange) {
    return exchange.state == Exchange::State::kDone && wave.is_needed();
  }
  /// Of a complete dispatch, slot i of [num_tokens * top_k].
  FoundRow find(std::size_t slot) const;
};

}  // namespace ferry
