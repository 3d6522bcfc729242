#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "profiler/capture.h"
#include "runtime/trace/clock_skew.h"
#include "runtime/trace/step_marks.h"
#include "runtime/trace/trace_wire.h"

namespace ferry {

/// An expert worker's side of captures: does what the coordinator's commands say. Used by the thread that talks to the group.
class TraceWorker {
 public:
  /// `skew` makes this rank's clock differ, for tests of the alignment.
  TraceWorker(Rank rank, int32_t num_threads, const ClockSkew& skew);
  ~TraceWorker();
  TraceWorker(const TraceWorker&) = delete;
  TraceWorker& operator=(const TraceWorker&) = delete;

  /// Does what a message of kind kTrace says and returns the reply, valid until the next call. Throws Error{kInternal} for a
  /// malformed one; what cannot be done is said in the reply.
  std::span<const std::byte> answer(std::span<const std::byte> message);

  /// Rows of `step` have come, for which this rank had waited since `begun` (ticks). `is_detailed`: their source records the
  /// step in detail, and so does this rank from here on.
  void note_rows(int64_t step, uint64_t begun, bool is_detailed);

 private:
  void run(const TraceCommand& command, TraceReply& reply);
  void keep(RankCapture capture);
  void take_steps(int64_t first);
  void describe(RankCapture& capture) const;
  int64_t clock_ns(int64_t ns) const;

  const Rank rank_;
  const int32_t num_threads_;
  const ClockSkew skew_;
  const int64_t skew_reference_ns_;
  std::string boot_id_;
  StepMarks marks_;
  bool is_detailed_ = false;        // the step
  std::vector<std::byte> encoded_;  // the capture that is being fetched
  std::vector<std::byte> taken_;    // steps, for the reply that is being made
  std::vector<std::byte> reply_;
};

}  // namespace ferry
