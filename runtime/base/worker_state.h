#pragma once

#include <cstdint>

namespace ferry {

/// How a worker stands with who sends it rows.
enum class WorkerState : uint8_t {
  kVacant,   // nobody has the seat
  kHealthy,  // gets rows
  kSuspect,  // owes an answer for longer than usual: gets nothing new until it has given it
  kMasked,   // lost: its link has ended, and some of its experts have no other holder yet, or fewer than they should
  kJoining,  // has come, and makes ready what it is to hold
  kLeaving,  // wants to go: gets rows until others hold its experts
  kGone,     // left, or lost and others hold its experts
};
inline constexpr int kNumWorkerStates = 7;

inline const char* worker_state_name(WorkerState state) {
  switch (state) {
    case WorkerState::kVacant: return "vacant";
    case WorkerState::kHealthy: return "healthy";
    case WorkerState::kSuspect: return "suspect";
    case WorkerState::kMasked: return "masked";
    case WorkerState::kJoining: return "joining";
    case WorkerState::kLeaving: return "leaving";
    case WorkerState::kGone: return "gone";
  }
  return "";
}

}  // namespace ferry
