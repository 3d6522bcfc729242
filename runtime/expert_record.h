#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "moe/expert_load.h"
#include "moe/expert_placement.h"
#include "moe/placement/load_windows.h"

// What was asked of each expert of late and where each one is, for whoever watches a job or places experts anew.

namespace ferry {

/// The loads of a file of which `earlier` was read, after a run that had `own`: those of the last `max_steps` steps, of which
/// an earlier run's, which are the same mean for each of its steps, fill up what this run has not had.
ExpertLoads join_loads(const std::optional<ExpertLoads>& earlier, const ExpertLoads& own, double max_steps);

/// Loads as a run counts them: the layers of the model, and one more of its drafts if it makes any.
struct LoadShape {
  int64_t num_layers = 0;
  int64_t num_experts = 0;
  bool has_drafts = false;  // their layer is the last one, and not among num_layers
};

/// Loads that were read from the file `name`, of a run with drafts or without, in the shape of this run: a layer that only one
/// of them has goes, or had no rows. Throws Error{kInvalidArgument} for those of another model.
ExpertLoads fit_loads(ExpertLoads loads, const LoadShape& shape, const std::string& name);

/// Who has decided where experts are.
enum class PlacedBy : uint8_t { kFerry, kHand };

/// Written by the thread that steps, read by any.
class ExpertRecord {
 public:
  static constexpr int64_t kStepsPerWindow = 64;
  static constexpr int64_t kNumWindows = 16;

  ExpertRecord(const ExpertPlacement& placement, const ExpertLoad& load);

  /// Between steps: what the last one has added, [num_layers, num_experts] counts; and the placement, where it is another one.
  void take(const ExpertPlacement& placement, const ExpertLoad& load);

  /// Between steps: they run by another placement from now on.
  void note_placement(const ExpertPlacement& placement, PlacedBy by);

  /// Sums over the windows.
  ExpertLoads loads() const;
  struct Placed {
    std::shared_ptr<const ExpertPlacement> placement;
    PlacedBy by = PlacedBy::kFerry;
  };
  Placed placed() const;

 private:
  mutable std::mutex mutex_;
  LoadWindows windows_;
  Placed placed_;
};

/// --expert-load: the loads of a job in a file, from run to run.
class ExpertLoadFile {
 public:
  /// Reads the file if there is one. Throws Error{kInvalidArgument} for one that is not of this form or of another model, and
  /// {kFailedPrecondition} if it cannot be written.
  ExpertLoadFile(std::filesystem::path path, const LoadShape& shape);
  /// Writes it a last time.
  ~ExpertLoadFile();
  ExpertLoadFile(const ExpertLoadFile&) = delete;
  ExpertLoadFile& operator=(const ExpertLoadFile&) = delete;

  /// What earlier runs left, if any did.
  const std::optional<ExpertLoads>& earlier() const { return earlier_; }
  /// From now on what `record` has is written, every few minutes on a thread of its own and at the end. It outlives this.
  void follow(const ExpertRecord& record);
  /// Writes it now: a new file takes the place of the old one once it is whole. Throws Error{kFailedPrecondition} or
  /// {kResourceExhausted} with the system's reason.
  void write();

 private:
  void run();
  void try_to_write();

  const std::filesystem::path path_;
  std::optional<ExpertLoads> earlier_;
  const ExpertRecord* record_ = nullptr;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace ferry
