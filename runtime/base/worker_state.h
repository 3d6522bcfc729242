#pragma once

#include <cstdint>

namespace ferry {

/// How a worker stands with who sends it rows.
enum class WorkerState : uint8_t {
  kVacant,   // nobody has the seat
  kHealthy,  // gets rows
  kSuspect,  // owes an answer for longer than usual: gets nothing new until it has given it
  kMasked,   // lost: its link has ended
};
inline constexpr int kNumWorkerStates = 4;

inline const char* worker_state_name(WorkerState state) {
  switch (state) {
    case WorkerState::kVacant: return "vacant";
    case WorkerState::kHealthy: return "healthy";
    case WorkerState::kSuspect: return "suspect";
    case WorkerState::kMasked: return "masked";
  }
  return "";
}

}  // namespace ferry
