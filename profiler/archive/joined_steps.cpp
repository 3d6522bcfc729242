#include "profiler/archive/joined_steps.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace ferry {
namespace {

int64_t to_ns(const RankCapture& rank, uint64_t ticks) { return rank.alignment.to_coordinator_ns(rank.ticks.to_ns(ticks)); }

/// From here on its ticks are nanoseconds of the coordinator's clock.
void to_common_time(Capture& capture) {
  const RankCapture own = {.ticks = capture.ranks.front().ticks, .alignment = capture.ranks.front().alignment};
  for (WorkerChangeFacts& change : capture.info.worker_changes) change.ticks = static_cast<uint64_t>(to_ns(own, change.ticks));
  for (RankCapture& rank : capture.ranks) {
    for (ThreadCapture& thread : rank.threads) {
      for (SpanRecord& record : thread.records) {
        record.begin = static_cast<uint64_t>(to_ns(rank, record.begin));
        record.end = std::max(record.begin, static_cast<uint64_t>(to_ns(rank, record.end)));
      }
    }
    rank.begin = static_cast<uint64_t>(to_ns(rank, rank.begin));
    rank.end = std::max(rank.begin, static_cast<uint64_t>(to_ns(rank, rank.end)));
    rank.ticks = {};
    rank.alignment = {.bound_ns = rank.alignment.bound_ns};
  }
}

std::set<uint32_t> steps_of(const Capture& capture) {
  std::set<uint32_t> steps;
  for (const ThreadCapture& thread : capture.ranks.front().threads) {
    for (const SpanRecord& record : thread.records) {
      if (record.zone == Zone::kStep) steps.insert(record.step);
    }
  }
  return steps;
}

void append(RankCapture& all, RankCapture& part, const std::set<uint32_t>& known) {
  if (all.threads.empty()) all.host = part.host;
  all.begin = std::min(all.begin, part.begin);
  all.end = std::max(all.end, part.end);
  all.alignment.bound_ns = std::max(all.alignment.bound_ns, part.alignment.bound_ns);
  all.num_preemptions += part.num_preemptions;
  all.peak_rss_bytes = std::max(all.peak_rss_bytes, part.peak_rss_bytes);
  for (ThreadCapture& thread : part.threads) {
    std::erase_if(thread.records, [&](const SpanRecord& r) { return r.step != kNoStep && known.contains(r.step); });
    const auto same = std::ranges::find_if(all.threads, [&](const ThreadCapture& t) {
      return t.tid == thread.tid && t.name == thread.name && t.is_device == thread.is_device;
    });
    if (same == all.threads.end()) {
      all.threads.push_back(std::move(thread));
    } else {
      same->num_lost += thread.num_lost;
      same->records.insert(same->records.end(), thread.records.begin(), thread.records.end());
    }
  }
}

void add_info(CaptureInfo& all, const CaptureInfo& part) {
  all.level = std::max(all.level, part.level);
  for (const auto& [why, num_steps] : part.selection) all.selection[why] += num_steps;
  for (std::size_t l = 0; l < std::min(all.expert_tokens.size(), part.expert_tokens.size()); ++l) {
    std::vector<int64_t>& counts = all.expert_tokens[l];
    for (std::size_t e = 0; e < std::min(counts.size(), part.expert_tokens[l].size()); ++e)
      counts[e] += part.expert_tokens[l][e];
  }
  const std::size_t room = kMaxWorkerChanges - std::min(kMaxWorkerChanges, all.worker_changes.size());
  const std::size_t count = std::min(room, part.worker_changes.size());
  all.worker_changes.insert(all.worker_changes.end(), part.worker_changes.begin(),
                            part.worker_changes.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

Capture join_steps(std::vector<Capture> captures) {
  for (Capture& capture : captures) to_common_time(capture);
  std::ranges::sort(captures, {}, [](const Capture& c) { return c.ranks.front().begin; });
  Capture all = std::move(captures.front());
  std::set<uint32_t> known = steps_of(all);
  for (std::size_t c = 1; c < captures.size(); ++c) {
    std::set<uint32_t> steps = steps_of(captures[c]);
    if (std::ranges::includes(known, steps)) continue;
    for (std::size_t r = 0; r < std::min(all.ranks.size(), captures[c].ranks.size()); ++r)
      append(all.ranks[r], captures[c].ranks[r], known);
    add_info(all.info, captures[c].info);
    known.merge(steps);
  }
  for (RankCapture& rank : all.ranks) {
    for (ThreadCapture& thread : rank.threads) std::ranges::stable_sort(thread.records, {}, &SpanRecord::end);
  }
  return all;
}

}  // namespace ferry
