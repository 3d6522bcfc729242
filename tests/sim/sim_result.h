#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/faulty/faults.h"
#include "tests/sim/sim_plan.h"
#include "tests/sim/workload.h"

namespace ferry::sim {

/// What became of a run.
struct SimResult {
  std::vector<std::string> failures;         // what must not be; empty if the run was right
  std::vector<std::vector<TokenId>> tokens;  // [requests]
  bool is_whole = false;                     // every request that was not given up got its whole answer
  std::map<std::string, int64_t> errors;     // that ended ranks, by code
  std::array<int64_t, kNumFaultKinds> num_faults{};
  int64_t num_messages = 0;
  int64_t num_covered = 0;     // rows that others, or the coordinator, were asked for in a worker's place
  int64_t num_placements = 0;  // after the first
  Duration elapsed{0};         // virtual
  uint64_t log_hash = 0;
};

}  // namespace ferry::sim
