#include "profiler/report/lost_time/waiting.h"

#include <algorithm>

#include "profiler/report/timeline/step_slices.h"

namespace ferry {

std::optional<Interval> find_queue_time(const ReportInput& input, const RequestInfo& request) {
  const Timeline& timeline = input.timeline;
  if (!request.queued_ns && !request.first_scheduled_ns) return std::nullopt;
  const bool has_both = request.queued_ns && request.first_scheduled_ns;
  if (!input.capture.info.selection.empty() && !has_both) return std::nullopt;
  return Interval{request.queued_ns.value_or(timeline.begin_ns),
                  request.first_scheduled_ns.value_or(request.finished_ns.value_or(timeline.end_ns))};
}

IntervalSet find_waiting(const ReportInput& input) {
  std::vector<Interval> queued;
  for (const RequestInfo& request : input.timeline.requests) {
    if (const std::optional<Interval> when = find_queue_time(input, request)) queued.push_back(*when);
  }
  return intersect(make_interval_set(std::move(queued)), find_recorded(input));
}

namespace {

/// When threads of the coordinator were in such a span.
IntervalSet find_spans(const Timeline& timeline, Zone zone) {
  std::vector<Interval> spans;
  for (const Slice& slice : timeline.slices) {
    if (slice.zone == zone && timeline.lanes[static_cast<std::size_t>(slice.lane)].rank == 0)
      spans.push_back({slice.begin_ns, slice.end_ns});
  }
  return make_interval_set(std::move(spans));
}

}  // namespace

IntervalSet find_recorded(const ReportInput& input) {
  const Timeline& timeline = input.timeline;
  const IntervalSet whole = {{timeline.begin_ns, timeline.end_ns}};
  if (input.capture.info.selection.empty()) return whole;
  const IntervalSet busy = unite(find_spans(timeline, Zone::kStep), find_asides(timeline));
  return intersect(whole, unite(busy, find_spans(timeline, Zone::kEncodeMedia)));
}

IntervalSet find_gaps(const ReportInput& input) {
  const Timeline& timeline = input.timeline;
  return subtract(find_recorded(input), unite(find_spans(timeline, Zone::kStep), find_asides(timeline)));
}

IntervalSet find_pictures(const Timeline& timeline) {
  const IntervalSet elsewhere = unite(find_spans(timeline, Zone::kStep), find_asides(timeline));
  return subtract(find_spans(timeline, Zone::kEncodeMedia), elsewhere);
}

IntervalSet find_asides(const Timeline& timeline) {
  std::vector<Interval> asides;
  for (const SectionInfo& section : timeline.sections) {
    if (section.role == SectionRole::kAside) asides.insert(asides.end(), section.stretches.begin(), section.stretches.end());
  }
  return make_interval_set(std::move(asides));
}

const char* WaitReasons::worst() const {
  if (slots >= kv_blocks && slots >= steps) return "slots";
  return kv_blocks >= steps ? "KV blocks" : "steps";
}

WaitReasons find_wait_reasons(const ReportInput& input, const IntervalSet& waiting) {
  const CaptureInfo& info = input.capture.info;
  WaitReasons reasons;
  reasons.max_running = info.max_running_requests;
  reasons.max_blocks = info.num_kv_blocks;
  int64_t running = 0, blocks = 0, begin_ns = input.timeline.begin_ns;
  double running_ns = 0;
  const auto close = [&](int64_t end_ns) {  // what held since begin_ns
    const int64_t ns = total(clip(waiting, {begin_ns, end_ns}));
    running_ns += static_cast<double>(ns) * static_cast<double>(running);
    const int64_t free_blocks = info.num_kv_blocks - blocks;
    if (info.max_running_requests > 0 && running >= info.max_running_requests) {
      reasons.slots += ns;
    } else if (info.num_kv_blocks > 0 && running > 0 && free_blocks * running < blocks) {
      reasons.kv_blocks += ns;
    } else {
      reasons.steps += ns;
    }
    begin_ns = end_ns;
  };
  for (const CounterSample& sample : input.timeline.counters) {
    if (sample.rank != 0 || (sample.zone != Zone::kRunningRequests && sample.zone != Zone::kUsedKvBlocks)) continue;
    const int64_t at_ns = std::clamp(sample.at_ns, begin_ns, input.timeline.end_ns);
    if (at_ns > begin_ns) close(at_ns);
    (sample.zone == Zone::kRunningRequests ? running : blocks) = sample.value;
  }
  if (begin_ns < input.timeline.end_ns) close(input.timeline.end_ns);
  if (const int64_t all_ns = total(waiting); all_ns > 0) reasons.mean_running = running_ns / static_cast<double>(all_ns);
  return reasons;
}

}  // namespace ferry
