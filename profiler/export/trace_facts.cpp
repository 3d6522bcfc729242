#include "profiler/export/trace_facts.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "runtime/base/check.h"

namespace ferry {
namespace {

auto key_of(const CounterSample& sample) { return std::tuple(sample.rank, sample.zone, sample.b); }
auto key_of(const CounterRow& row) { return std::tuple(row.rank, row.zone, row.b); }

}  // namespace

const char* category_name(ZoneKind kind) {
  switch (kind) {
    case ZoneKind::kStep: return "step";
    case ZoneKind::kCompute: return "comp";
    case ZoneKind::kHost: return "host";
    case ZoneKind::kWait: return "wait";
    case ZoneKind::kTransfer: return "comm";
    case ZoneKind::kRequest: return "request";
    case ZoneKind::kCounter: return "counter";
    case ZoneKind::kSection: return "section";
  }
  return "";
}

std::vector<ArrowEnd> find_arrow_ends(const Timeline& timeline) {
  const auto slice_at = [&](int32_t slice) -> const Slice& { return timeline.slices.at(static_cast<std::size_t>(slice)); };
  std::vector<ArrowEnd> ends;
  ends.reserve(3 * timeline.flows.size());
  for (const Flow& flow : timeline.flows) {
    const Slice &dispatch = slice_at(flow.dispatch), &experts = slice_at(flow.experts), &combine = slice_at(flow.combine);
    if (dispatch.begin_ns >= experts.begin_ns || experts.begin_ns >= combine.begin_ns) continue;
    if (dispatch.duration_ns() == 0 || experts.duration_ns() == 0 || combine.duration_ns() == 0) continue;
    ends.push_back({flow.dispatch, flow.id, ArrowEnd::Role::kStart});
    ends.push_back({flow.experts, flow.id, ArrowEnd::Role::kStep});
    ends.push_back({flow.combine, flow.id, ArrowEnd::Role::kEnd});
  }
  std::sort(ends.begin(), ends.end(),
            [](const ArrowEnd& x, const ArrowEnd& y) { return std::tuple(x.slice, x.id) < std::tuple(y.slice, y.id); });
  return ends;
}

std::span<const ArrowEnd> arrow_ends_of(const std::vector<ArrowEnd>& ends, int32_t slice) {
  const auto first = std::partition_point(ends.begin(), ends.end(), [&](const ArrowEnd& e) { return e.slice < slice; });
  const auto last = std::partition_point(first, ends.end(), [&](const ArrowEnd& e) { return e.slice == slice; });
  return {first, last};
}

TraceFacts::TraceFacts(const ReportInput& input) : input_(input) {
  for (const StepInfo& step : input.timeline.steps) steps_.push_back(&step);
  std::sort(steps_.begin(), steps_.end(), [](const StepInfo* x, const StepInfo* y) { return x->step < y->step; });
  std::set<std::tuple<int32_t, Zone, uint32_t>> keys;
  for (const CounterSample& sample : input.timeline.counters) keys.insert(key_of(sample));
  for (const auto& [rank, zone, b] : keys) {
    const ZoneInfo& info = zone_info(zone);
    std::string name = info.name;
    if (*info.b_name != '\0') name += " of rank " + std::to_string(b);
    counter_rows_.push_back({rank, zone, b, std::move(name)});
  }
}

std::string TraceFacts::rank_title(const RankCapture& rank) const {
  return "rank " + std::to_string(rank.rank) + (rank.rank == 0 ? " coordinator" : " worker") + " (" + rank.host + ")";
}

std::vector<std::string> TraceFacts::rank_labels(const RankCapture& rank) const {
  std::vector<std::string> labels = {"host " + rank.host, "process " + std::to_string(rank.pid)};
  if (!rank.device.name.empty()) labels.push_back("device " + rank.device.name + ", clock " + rank.device.clock);
  if (rank.alignment.bound_ns > 0) {
    labels.push_back("clock within " + std::to_string(static_cast<int64_t>(rank.alignment.bound_ns / 1000) + 1) + " us");
  }
  return labels;
}

void TraceFacts::fill_args(const Slice& slice, std::vector<TraceArg>& args) const {
  args.clear();
  const ZoneInfo& info = zone_info(slice.zone);
  int64_t step_drafts = 0, step_kept = 0;
  if (slice.step != kNoStep) {
    args.push_back({"step", slice.step});
    const auto step = std::lower_bound(steps_.begin(), steps_.end(), slice.step,
                                       [](const StepInfo* x, uint32_t number) { return x->step < number; });
    const bool is_known = step != steps_.end() && (*step)->step == slice.step;
    args.push_back({"phase", 0, is_known ? phase_name((*step)->phase) : "unknown"});
    step_drafts = is_known ? (*step)->num_drafts : 0;
    step_kept = is_known ? (*step)->num_kept : 0;
  }
  if (slice.layer != kNoLayer) {
    args.push_back({"layer", slice.layer});
    const std::vector<std::string>& types = input_.capture.info.model.layer_types;
    const auto layer = static_cast<std::size_t>(slice.layer);
    args.push_back({"layer_type", 0, layer < types.size() ? types[layer].c_str() : "unknown"});
    if (slice.micro_batch > 0) args.push_back({"micro_batch", slice.micro_batch});
  }
  args.push_back({"part", 0, part_name(info.part)});
  if (*info.a_name != '\0') args.push_back({info.a_name, slice.a});
  if (slice.zone == Zone::kStep) {
    args.push_back({"sequences", plan_sequences(slice.b)});
    if (step_drafts > 0) {
      args.push_back({"drafts", step_drafts});
      args.push_back({"kept", step_kept});
    }
  } else if (slice.zone == Zone::kRequestVerify) {
    args.push_back({"drafts", verify_drafts(slice.b)});
    args.push_back({"kept", verify_kept(slice.b)});
  } else if (*info.b_name != '\0') {
    args.push_back({info.b_name, slice.b});
  }
  if (slice.num_beside > 0) args.push_back({"beside", slice.num_beside});
}

uint64_t TraceFacts::num_lost(const Lane& lane) const {
  if (lane.kind != Lane::Kind::kThread && lane.kind != Lane::Kind::kDevice) return 0;
  const bool is_device = lane.kind == Lane::Kind::kDevice;
  uint64_t result = 0;
  for (const RankCapture& rank : input_.capture.ranks) {
    if (rank.rank != lane.rank) continue;
    for (const ThreadCapture& thread : rank.threads) {
      const bool is_it = thread.is_device == is_device && (is_device || thread.tid == lane.tid) && thread.name == lane.name;
      if (is_it) result += thread.num_lost;
    }
  }
  return result;
}

std::size_t TraceFacts::row_of(const CounterSample& sample) const {
  const auto found = std::lower_bound(counter_rows_.begin(), counter_rows_.end(), key_of(sample),
                                      [](const CounterRow& row, const auto& key) { return key_of(row) < key; });
  FERRY_CHECK(found != counter_rows_.end() && found->holds(sample)) << " counter " << zone_info(sample.zone).name;
  return static_cast<std::size_t>(found - counter_rows_.begin());
}

}  // namespace ferry
