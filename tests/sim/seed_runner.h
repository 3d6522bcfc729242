#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/sim/sim_result.h"

namespace ferry::sim {

/// Sums over runs. Plain numbers, as processes share it.
struct SimTotals {
  static constexpr int kNumCodes = static_cast<int>(ErrorCode::kUnavailable) + 1;

  int64_t num_runs = 0;
  int64_t num_whole = 0;   // every request got its whole answer
  int64_t num_errors = 0;  // a rank ended in a named error, or a fault hit before all had loaded
  std::array<int64_t, kNumCodes> errors_by_code{};
  std::array<int64_t, kNumFaultKinds> num_faults{};
  int64_t num_messages = 0;
  int64_t num_covered_rows = 0;
  int64_t num_placements = 0;
  double virtual_s = 0;

  void add(const SimResult& result);
  void add(const SimTotals& other);
};

struct SeedRange {
  int64_t first = 1, last = 0;
};

/// Plays all seeds in `num_jobs` processes, so that a crash or a hang is one seed's failure and the others go on. What they say
/// on stderr is shown of seeds that failed.
class SeedRunner {
 public:
  /// True if the seed's run was right; adds to the totals.
  using PlaySeed = std::function<bool(int64_t seed, SimTotals& totals)>;

  SeedRunner(SeedRange seeds, int num_jobs, PlaySeed play_seed);

  /// Returns the seeds that failed. `max_failures`: gives up after so many.
  std::vector<int64_t> run(int64_t max_failures);
  const SimTotals& totals() const { return totals_; }

 private:
  struct Job;

  void start(Job& job, int64_t first_seed);
  /// In the job's process.
  [[noreturn]] void play_all(Job& job, int64_t first_seed);
  void look_after(Job& job);

  const SeedRange seeds_;
  const int num_jobs_;
  const PlaySeed play_seed_;
  SimTotals totals_;
  std::vector<int64_t> failed_;
};

}  // namespace ferry::sim
