#pragma once

#include <cstdint>

namespace CLI {
class App;
}  // namespace CLI

namespace ferry {

/// Whether rows of a coordinator wait at a worker for those of another, to be computed with them: kAuto where that was found to
/// pay (MergeTrial).
enum class WaitToMerge : uint8_t { kAuto, kAlways, kNever };

/// Coordinators that share workers.
struct SharingOptions {
  static constexpr int kMaxCoordinators = 16;

  int32_t coordinators = 1;                        // of a job: its first ranks; the others work for all of them
  WaitToMerge wait_to_merge = WaitToMerge::kAuto;  // of its workers
};

/// --coordinators and --wait-to-merge.
void add_sharing_options(CLI::App& app, SharingOptions& options);
/// --wait-to-merge alone, of workers that join.
void add_wait_to_merge(CLI::App& app, SharingOptions& options);

}  // namespace ferry
