#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "profiler/archive/archive_status.h"
#include "profiler/archive/step_archive.h"
#include "profiler/archive/step_drift.h"
#include "profiler/archive/step_sink.h"
#include "runtime/base/clock.h"

namespace ferry {

/// Takes steps from the thread that steps, and writes the archive by a thread of its own at low priority, which looks for new
/// ones twice a second and is woken by nobody. Between two looks it takes kMaxSamples samples and kMaxOfOthers for each other
/// reason; more, and those that were not collected, are counted by their reason beside the lengths of steps, and said in the
/// log once. What cannot be written is said once an hour at most, and costs nothing else.
class ArchiveKeeper final : public StepSink {
 public:
  /// Opens the archive: throws as StepArchive does. `clock` says when the thread looks; what is kept has the time of day.
  ArchiveKeeper(const std::filesystem::path& folder, int64_t max_bytes, Clock& clock = real_clock());
  /// Writes what is there. Nobody may add any more.
  ~ArchiveKeeper() override;
  ArchiveKeeper(const ArchiveKeeper&) = delete;
  ArchiveKeeper& operator=(const ArchiveKeeper&) = delete;

  void add_step(const StepFacts& facts) override;
  void add_kept_step(KeptStep kept) override;
  void add_left_out(const CountsByReason& counts) override;

  /// Any thread.
  ArchiveStatus status() const;

 private:
  static constexpr std::size_t kMaxSteps = std::size_t{1} << 14;  // between two looks; more are not counted
  // Places between two looks, so that a flood of samples costs no step that stands out, nor one of these a sample.
  static constexpr int64_t kMaxSamples = 64;
  static constexpr int64_t kMaxOfOthers = 16;  // of each other reason
  static constexpr std::size_t kMaxKept = kMaxSamples + (kNumKeptFor - 1) * kMaxOfOthers;

  struct Length {
    StepKind kind;
    double seconds = 0;
  };

  void run();
  void write(std::vector<KeptStep>& kept);
  void count(const std::vector<Length>& lengths);
  void tell_left_out(const CountsByReason& left_out);
  void keep_minute();
  void complain(const char* what);

  Clock& clock_;
  StepArchive archive_;  // as all up to the mutex of the thread alone
  StepHistory history_;
  DriftWatch drift_;
  int64_t written_minute_ = 0;
  int64_t complained_s_ = 0;
  bool has_told_left_out_ = false;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable leave_;
  bool is_leaving_ = false;
  std::vector<Length> lengths_;
  std::vector<KeptStep> kept_;
  CountsByReason num_waiting_{};   // of kept_
  CountsByReason num_left_out_{};  // since the last look
  ArchiveStatus status_;
  std::thread thread_;
};

}  // namespace ferry
