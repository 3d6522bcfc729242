#include "launch/verify/shares.h"

#include <algorithm>
#include <map>

#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

struct Shares {
  double step_ns = 0, tokens = 0;
  std::map<std::string, double> coordinator, workers;  // ns
};

std::string name_of(const Slice& slice) {
  const std::string name = zone_info(slice.zone).name;
  if (slice.zone == Zone::kStep) return "between operators";
  return is_peer_wait(slice.zone) ? name + " for rank " + std::to_string(slice.b) : name;
}

Shares add_up(const ReportInput& input, const std::vector<std::size_t>& steps) {
  const Timeline& timeline = input.timeline;
  std::vector<bool> is_chosen(timeline.steps.size());
  Shares shares;
  for (const std::size_t step : steps) {
    is_chosen.at(step) = true;
    shares.step_ns += static_cast<double>(timeline.steps[step].end_ns - timeline.steps[step].begin_ns);
    shares.tokens += static_cast<double>(timeline.steps[step].num_useful());
  }
  for_each_step_slice(timeline, [&](std::size_t step, const Slice& slice) {
    if (is_chosen[step]) shares.coordinator[name_of(slice)] += static_cast<double>(slice.self_ns);
  });
  const StepIndex index(timeline);
  for (const Slice& slice : timeline.slices) {
    const Lane& lane = timeline.lanes[static_cast<std::size_t>(slice.lane)];
    if (slice.zone != Zone::kExperts || lane.rank == 0 || lane.kind != Lane::Kind::kThread) continue;
    const int32_t step = index.find(slice.step);
    if (step >= 0 && is_chosen[static_cast<std::size_t>(step)])
      shares.workers["experts of rank " + std::to_string(lane.rank)] += static_cast<double>(slice.duration_ns());
  }
  return shares;
}

std::vector<TimeShare> hold_together(const std::map<std::string, double>& before, double before_tokens,
                                     const std::map<std::string, double>& after, double after_tokens) {
  std::map<std::string, TimeShare> both;
  for (const auto& [what, ns] : before) both[what].before_us = ns / before_tokens / 1e3;
  for (const auto& [what, ns] : after) both[what].after_us = ns / after_tokens / 1e3;
  std::vector<TimeShare> shares;
  for (auto& [what, share] : both) {
    share.what = what;
    shares.push_back(share);
  }
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.saved_us() > b.saved_us(); });
  return shares;
}

}  // namespace

TimeDifference compare_shares(const ReportInput& before, const std::vector<std::size_t>& before_steps, const ReportInput& after,
                              const std::vector<std::size_t>& after_steps) {
  const Shares a = add_up(before, before_steps), b = add_up(after, after_steps);
  if (a.tokens <= 0 || b.tokens <= 0) return {};
  return {.before_us = a.step_ns / a.tokens / 1e3,
          .after_us = b.step_ns / b.tokens / 1e3,
          .coordinator = hold_together(a.coordinator, a.tokens, b.coordinator, b.tokens),
          .workers = hold_together(a.workers, a.tokens, b.workers, b.tokens)};
}

}  // namespace ferry
