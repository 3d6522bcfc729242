#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/report/timeline/report_input.h"
#include "runtime/base/worker_state.h"

// What a capture tells of workers and of where experts lived: the coordinator's kWorkerChange and kPlacementChange.

namespace ferry {

/// A worker came to stand otherwise.
struct WorkerEvent {
  int64_t at_ns = 0;
  int32_t rank = 0;
  std::optional<WorkerState> from;  // absent where the capture does not tell
  WorkerState to = WorkerState::kVacant;
  std::string reason;  // empty where the capture does not tell
  ExchangeId at;       // the dispatch in which that was found, if it was in one
};

/// The coordinator saw to a change of where experts live.
struct PlacementChange {
  Interval when;                                  // that took it
  PlacementEvent event = PlacementEvent::kBegin;  // never kLook
  uint32_t epoch = 0;
  int64_t num_experts = 0;  // that workers read for it
};

struct WorkerHistory {
  std::vector<WorkerEvent> events;          // by time
  std::vector<PlacementChange> placements;  // by time
};
WorkerHistory find_worker_history(const ReportInput& input);

/// A worker is doubted, or lost.
bool is_trouble(const WorkerEvent& event);
/// Whether the worker that a wait was for came to be doubted or lost in the same dispatch.
bool was_in_vain(const Slice& wait, const WorkerHistory& history);

}  // namespace ferry
