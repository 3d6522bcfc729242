#include <algorithm>
#include <array>

#include "profiler/report/lost_time/waiting.h"
#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

enum class Cause : uint8_t {
  kDispatch,
  kCombine,
  kSend,
  kLock,
  kScheduler,
  kNoWork,
  kPreempted,
  kHandingOver,
  kDevice,
  kUnknown
};
constexpr std::size_t kNumCauses = 10;
constexpr const char* kCauseNames[kNumCauses] = {"waiting for dispatch data",
                                                 "waiting for combine",
                                                 "waiting for a send",
                                                 "lock",
                                                 "scheduler",
                                                 "no work",
                                                 "preempted",
                                                 "handing over to the device",
                                                 "waiting for the device",
                                                 "unknown"};
// A thread that lost its core is gone for the rest of a scheduling period at least.
constexpr int64_t kPreemptedNs = 500'000;

/// A stretch of a rank's time without operators and messages in which no step begins or ends.
struct Gap {
  int32_t rank = 0;
  Interval when;
  const StepInfo* step = nullptr;
  std::array<int64_t, kNumCauses> covered{};  // ns by cause, of slices that account for it
  Zone previous = Zone::kStep, next = Zone::kStep;
  int64_t previous_end_ns = -1, next_begin_ns = -1;
};

void keep_longest(std::vector<Gap>& gaps, std::size_t count) {
  const std::size_t kept = std::min(count, gaps.size());
  std::partial_sort(gaps.begin(), gaps.begin() + static_cast<std::ptrdiff_t>(kept), gaps.end(), [](const Gap& x, const Gap& y) {
    const int64_t x_ns = x.when.end - x.when.begin, y_ns = y.when.end - y.when.begin;
    return x_ns != y_ns ? x_ns > y_ns : x.when.begin < y.when.begin;
  });
  gaps.resize(kept);
}

/// Where requests wait or a step runs; and a few gaps of idleness, which would crowd out all others.
std::vector<Gap> longest_gaps(const ReportInput& input, int32_t rank, const IntervalSet& outside, const IntervalSet& waiting) {
  constexpr std::size_t kShown = 10, kIdleShown = 3;
  const Timeline& timeline = input.timeline;
  const RankActivity& activity = input.activity[static_cast<std::size_t>(rank)];
  const IntervalSet free = subtract({{timeline.begin_ns, timeline.end_ns}}, unite(activity.computing, activity.communication));
  const IntervalSet free_outside = intersect(free, outside);
  std::vector<Gap> gaps, idle;
  for (const Interval& piece : subtract(free_outside, waiting)) idle.push_back({rank, piece});
  for (const Interval& piece : intersect(free_outside, waiting)) gaps.push_back({rank, piece});
  for (const StepInfo& step : timeline.steps) {
    for (const Interval& piece : clip(free, {step.begin_ns, step.end_ns})) gaps.push_back({rank, piece, &step});
  }
  keep_longest(idle, kIdleShown);
  gaps.insert(gaps.end(), idle.begin(), idle.end());
  keep_longest(gaps, kShown);
  return gaps;
}

Cause cause_of(const Slice& slice, const Gap& gap) {
  if (slice.is_handed_over) return Cause::kHandingOver;
  switch (slice.zone) {
    case Zone::kWaitDispatch: return gap.step == nullptr ? Cause::kNoWork : Cause::kDispatch;
    case Zone::kWaitCombine: return Cause::kCombine;
    case Zone::kWaitSend: return Cause::kSend;
    case Zone::kWaitLock: return Cause::kLock;
    case Zone::kWaitDevice: return Cause::kDevice;
    case Zone::kSchedule:
    case Zone::kPublish: return Cause::kScheduler;
    case Zone::kIdle: return Cause::kNoWork;
    default: return Cause::kUnknown;
  }
}

void look_at(const Slice& slice, Gap& gap) {
  const ZoneKind kind = kind_of(slice);
  if (kind == ZoneKind::kCompute || kind == ZoneKind::kTransfer) {
    if (slice.end_ns <= gap.when.begin && slice.end_ns > gap.previous_end_ns) {
      gap.previous = slice.zone;
      gap.previous_end_ns = slice.end_ns;
    }
    if (slice.begin_ns >= gap.when.end && (gap.next_begin_ns < 0 || slice.begin_ns < gap.next_begin_ns)) {
      gap.next = slice.zone;
      gap.next_begin_ns = slice.begin_ns;
    }
    return;
  }
  const int64_t ns = std::min(slice.end_ns, gap.when.end) - std::max(slice.begin_ns, gap.when.begin);
  const Cause cause = cause_of(slice, gap);
  if (ns > 0 && cause != Cause::kUnknown) gap.covered[static_cast<std::size_t>(cause)] += ns;
}

/// What accounts for at least half of the gap, else what can be told from where it lies.
Cause find_cause(const ReportInput& input, const Gap& gap, const IntervalSet& waiting) {
  const int64_t length_ns = gap.when.end - gap.when.begin;
  const auto most = std::max_element(gap.covered.begin(), gap.covered.end());
  if (2 * *most >= length_ns) return static_cast<Cause>(most - gap.covered.begin());
  if (gap.step == nullptr) return total(clip(waiting, gap.when)) > 0 ? Cause::kScheduler : Cause::kNoWork;
  // A worker between its reply and the next rows, whose receive it had not posted yet.
  if (gap.rank > 0 && gap.previous == Zone::kCombineSend) return Cause::kDispatch;
  const bool was_preempted = input.capture.ranks[static_cast<std::size_t>(gap.rank)].num_preemptions > 0;
  return was_preempted && length_ns >= kPreemptedNs ? Cause::kPreempted : Cause::kUnknown;
}

Table::Cell name_cell(Zone zone, int64_t seen_ns) {
  if (seen_ns < 0) return std::monostate{};
  return zone_info(zone).name;
}

}  // namespace

Table make_free_view(const ReportInput& input) {
  Table table{
      .id = "free",
      .title = "Free time",
      .note =
          "The ten longest gaps of each rank without an operator or a message in flight, cut where a step begins or ends. "
          "Cause: what accounts for at least half of the gap; preempted: nothing does, it is longer than 500 us and "
          "the rank lost its core while capturing. " +
          clock_note(input),
      .columns = {{"rank"},
                  {"begin_us", 3},
                  {"length_us", 3},
                  {"step"},
                  {"previous_operator"},
                  {"next_operator"},
                  {"cause"},
                  {"clock_bound_us", 3}}};
  const Timeline& timeline = input.timeline;
  const IntervalSet outside = find_gaps(input), waiting = find_waiting(input);
  for (std::size_t r = 0; r < input.activity.size(); ++r) {
    const auto rank = static_cast<int32_t>(r);
    std::vector<Gap> gaps = longest_gaps(input, rank, outside, waiting);
    for (const Slice& slice : timeline.slices) {
      if (timeline.lanes[static_cast<std::size_t>(slice.lane)].rank != rank) continue;
      for (Gap& gap : gaps) look_at(slice, gap);
    }
    for (const Gap& gap : gaps) {
      Table::Cell step;
      if (gap.step != nullptr) step = static_cast<int64_t>(gap.step->step);
      table.rows.push_back({static_cast<int64_t>(rank), us_cell(gap.when.begin), us_cell(gap.when.end - gap.when.begin), step,
                            name_cell(gap.previous, gap.previous_end_ns), name_cell(gap.next, gap.next_begin_ns),
                            kCauseNames[static_cast<std::size_t>(find_cause(input, gap, waiting))],
                            clock_bound_ns(input, rank, 0) / 1e3});
    }
  }
  return table;
}

}  // namespace ferry
