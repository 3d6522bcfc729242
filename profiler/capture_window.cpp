#include "profiler/capture_window.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "profiler/capture_sections.h"

namespace ferry {
namespace {

int64_t to_ns(const RankCapture& rank, uint64_t ticks) { return rank.alignment.to_coordinator_ns(rank.ticks.to_ns(ticks)); }

/// The rank's ticks at a moment of the coordinator's clock: the lines backwards.
uint64_t to_rank_ticks(const RankCapture& rank, int64_t coordinator_ns) {
  const ClockAlignment& a = rank.alignment;
  const double since_reference = (static_cast<double>(coordinator_ns - a.reference_ns) - a.offset_ns) / (1 + a.drift);
  const double since_base = since_reference + static_cast<double>(a.reference_ns - rank.ticks.base_ns);
  return rank.ticks.base_ticks + static_cast<uint64_t>(std::llround(since_base / rank.ticks.ns_per_tick));
}

/// The steps of the coordinator, oldest first.
std::vector<SpanRecord> find_steps(const RankCapture& coordinator) {
  std::vector<SpanRecord> steps;
  for (const ThreadCapture& thread : coordinator.threads) {
    for (const SpanRecord& record : thread.records) {
      if (record.zone == Zone::kStep && record.step != kNoStep) steps.push_back(record);
    }
  }
  std::sort(steps.begin(), steps.end(), [](const SpanRecord& x, const SpanRecord& y) { return x.begin < y.begin; });
  return steps;
}

int64_t bound_ns(const RankCapture& rank) { return static_cast<int64_t>(std::ceil(rank.alignment.bound_ns)); }

bool is_inside(const CaptureWindow& window, const RankCapture& rank, const SpanRecord& record) {
  if (record.step == kNoStep) return record.begin <= rank.end && record.end >= rank.begin;
  return record.step >= window.first_step && record.step <= window.last_step;
}

}  // namespace

uint64_t find_common_begin(const Capture& capture) {
  const RankCapture& coordinator = capture.ranks.front();
  uint64_t begin = coordinator.begin;
  for (const RankCapture& rank : capture.ranks) {
    if (!rank.threads.empty()) begin = std::max(begin, to_rank_ticks(coordinator, to_ns(rank, rank.begin) + bound_ns(rank)));
  }
  return begin;
}

std::optional<CaptureWindow> find_window(const Capture& capture, uint64_t begin) {
  const RankCapture& coordinator = capture.ranks.front();
  int64_t end_ns = to_ns(coordinator, coordinator.end);
  for (const RankCapture& rank : capture.ranks) {
    if (!rank.threads.empty()) end_ns = std::min(end_ns, to_ns(rank, rank.end) - bound_ns(rank));
  }
  std::optional<CaptureWindow> window;
  for (const SpanRecord& step : find_steps(coordinator)) {
    const int64_t step_end_ns = to_ns(coordinator, step.end);
    if (step.begin < begin || step_end_ns > end_ns) continue;
    if (!window) {
      window = CaptureWindow{.first_step = step.step, .begin_ns = to_ns(coordinator, step.begin), .begin_ticks = step.begin};
    }
    window->last_step = step.step;
    window->end_ns = step_end_ns;
    window->end_ticks = step.end;
  }
  return window;
}

void cut_to(const CaptureWindow& window, Capture& capture) {
  for (RankCapture& rank : capture.ranks) {
    const bool is_coordinator = &rank == &capture.ranks.front();
    rank.begin = is_coordinator ? window.begin_ticks : to_rank_ticks(rank, window.begin_ns - bound_ns(rank));
    rank.end = is_coordinator ? window.end_ticks : to_rank_ticks(rank, window.end_ns + bound_ns(rank));
    rank.num_preemptions = 0;
    for (ThreadCapture& thread : rank.threads) {
      std::erase_if(thread.records, [&](const SpanRecord& record) { return !is_inside(window, rank, record); });
      for (const SpanRecord& record : thread.records) {
        if (record.zone == Zone::kPreemptions) rank.num_preemptions += record.a;
      }
    }
    for (const CaptureSection& section : capture_sections()) section.cut(window, rank);
  }
}

void cut_to_nothing(Capture& capture) {
  constexpr CaptureWindow kNothing{.first_step = 1, .last_step = 0};
  for (RankCapture& rank : capture.ranks) {
    rank.begin = rank.end;
    rank.num_preemptions = 0;
    for (ThreadCapture& thread : rank.threads) thread.records.clear();
    for (const CaptureSection& section : capture_sections()) section.cut(kNothing, rank);
  }
}

}  // namespace ferry
