#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "profiler/archive/segment.h"
#include "profiler/archive/step_history.h"

namespace ferry {

/// What somebody wants to know of an archive. Times are nanoseconds since 1970.
struct ArchiveQuery {
  int64_t from_ns = 0, to_ns = 0;
  std::optional<int64_t> at_ns;  // the moment it is about, between them
  std::optional<Phase> phase;    // steps of others are left out
  std::size_t num_slowest = 0;   // 0: no wish
};

inline constexpr int64_t kAroundNs = int64_t{300} * 1'000'000'000;  // on both sides of a moment
inline constexpr std::size_t kMaxChosen = 64;
inline constexpr std::size_t kNearest = 8;  // where nothing was kept around a moment

/// `steps` are all that are kept, by time; the result likewise.
struct ArchiveAnswer {
  std::vector<SegmentEntry> steps;   // of that time and phase; the nearest ones if is_elsewhere
  std::vector<SegmentEntry> chosen;  // of these, of one run: what is to be looked at, at most kMaxChosen
  bool is_elsewhere = false;         // nothing was kept around the moment that was asked for
};
ArchiveAnswer answer(const std::vector<SegmentEntry>& steps, const ArchiveQuery& query);

/// The chosen steps as a capture, nothing if none can be read. Steps that have gone meanwhile or are damaged, or whose run's
/// file is, are left out and said on stderr: a line for each file of a run, whose first step tells why.
std::optional<Capture> read_chosen(const std::filesystem::path& folder, const std::vector<SegmentEntry>& chosen);

}  // namespace ferry
