#include "profiler/capture_merge.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "profiler/capture_sections.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

constexpr const char* kMerged = "merge";  // in place of a run's command line

/// Where a capture's clock stands: wall time minus CLOCK_MONOTONIC of its coordinator.
int64_t wall_offset_ns(const Capture& capture) {
  const RankCapture& coordinator = capture.ranks.front();
  return capture.info.start_epoch_ns - coordinator.ticks.to_ns(coordinator.begin);
}

bool is_peer(const char* name) { return std::string_view(name) == "peer"; }
bool is_request(Zone zone) { return zone_info(zone).kind == ZoneKind::kRequest; }

/// What the next capture's numbers start from.
struct Numbers {
  int32_t rank = 0;
  uint32_t step = 0;
  uint32_t request = 0;
};

template <class Fn>
void for_each_record(Capture& capture, Fn&& fn) {
  for (RankCapture& rank : capture.ranks) {
    for (ThreadCapture& thread : rank.threads) {
      for (SpanRecord& record : thread.records) fn(record);
    }
  }
}

/// Numbers that follow those of `capture`.
Numbers count(Capture& capture, Numbers numbers) {
  numbers.rank += static_cast<int32_t>(capture.ranks.size());
  for_each_record(capture, [&](const SpanRecord& record) {
    if (record.step != kNoStep) numbers.step = std::max(numbers.step, record.step + 1);
    if (is_request(record.zone)) numbers.request = std::max(numbers.request, record.a + 1);
  });
  return numbers;
}

void renumber(Capture& capture, const Numbers& first) {
  for (RankCapture& rank : capture.ranks) {
    rank.rank += first.rank;
    for (const CaptureSection& section : capture_sections()) section.renumber(first.step, rank);
  }
  for_each_record(capture, [&](SpanRecord& record) {
    if (record.step != kNoStep) record.step += first.step;
    if (is_request(record.zone)) record.a += first.request;
    if (is_peer(zone_info(record.zone).b_name)) record.b += static_cast<uint32_t>(first.rank);
  });
}

void shift_clock(Capture& capture, int64_t offset_ns) {
  for (RankCapture& rank : capture.ranks) {
    rank.alignment.offset_ns += static_cast<double>(offset_ns);
    rank.alignment.bound_ns += kWallClockBoundNs;
  }
}

}  // namespace

Capture merge_captures(std::vector<Capture> captures) {
  FERRY_CHECK(!captures.empty());
  Capture merged = std::move(captures.front());
  Numbers numbers = count(merged, {});
  for (std::size_t i = 1; i < captures.size(); ++i) {
    Capture& next = captures[i];
    renumber(next, numbers);
    numbers = count(next, numbers);
    if (next.ranks.front().boot_id != merged.ranks.front().boot_id)
      shift_clock(next, wall_offset_ns(next) - wall_offset_ns(merged));
    for (RankCapture& rank : next.ranks) merged.ranks.push_back(std::move(rank));
  }
  merged.info.world_size = static_cast<int32_t>(merged.ranks.size());
  merged.info.command = kMerged;
  return merged;
}

bool is_merged(const Capture& capture) { return capture.info.command == kMerged; }

}  // namespace ferry
