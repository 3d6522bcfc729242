#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "profiler/archive/kept_step.h"
#include "profiler/archive/step_sketch.h"

namespace ferry {

/// How long all steps took, by hour and kind, for thirty days. In a folder it is a file a day, `steps-<day>.json`, days being
/// counted from 1970 in UTC. One thread at a time.
class StepHistory {
 public:
  static constexpr int64_t kHour = 3600, kDay = 24 * kHour;  // seconds
  static constexpr int64_t kMaxDays = 30;
  static constexpr std::size_t kMaxKinds = 512;  // of an hour; steps of more count as of kOtherKind

  using Kinds = std::map<StepKind, StepSketch>;
  /// Of steps whose like cannot be told any more.
  static constexpr StepKind other_kind(Phase phase) { return {.phase = phase, .rows = 255, .keys = 255}; }

  /// `time_s`: seconds since 1970, as everywhere here.
  void add(const StepKind& kind, double seconds, int64_t time_s);
  /// `count` steps that were to be kept for `why` were not, for want of room.
  void add_left_out(KeptFor why, int64_t count, int64_t time_s);
  /// Leaves the last kMaxDays before `now_s`.
  void forget(int64_t now_s);

  /// Of the hours that [from_s, to_s) touches.
  Kinds kinds(int64_t from_s, int64_t to_s) const;
  StepSketch phase(Phase phase, int64_t from_s, int64_t to_s) const;
  CountsByReason left_out(int64_t from_s, int64_t to_s) const;

  /// The day that holds `time_s` as the text of its file, and a day's file back: what is there of its hours is added to. Throws
  /// Error{kInvalidArgument} that names `source` for a damaged one; then nothing is added.
  std::string day_text(int64_t time_s) const;
  void add_day(std::string_view text, const std::string& source);

 private:
  std::map<int64_t, Kinds> hours_;              // by hour since 1970
  std::map<int64_t, CountsByReason> left_out_;  // likewise, where there are any
};

/// Reads the days that are there; says on stderr of each file that is damaged that it is left out.
StepHistory read_history(const std::filesystem::path& folder);
/// Writes the day that holds `now_s`, and that before it while it is young; removes those beyond kMaxDays. Throws Error as
/// PendingFile does.
void write_history(const std::filesystem::path& folder, const StepHistory& history, int64_t now_s);

}  // namespace ferry
