#include "profiler/report/page_data/step_columns.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "profiler/report/page_data/packing.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

/// The place of a slice in its step.
using Places = std::unordered_map<int32_t, uint64_t>;
using Arrows = std::vector<std::pair<uint64_t, uint64_t>>;

void put_arrows(const Arrows& arrows, VarintWriter& out) {
  out.put(arrows.size());
  for (const auto& [from, to] : arrows) {
    out.put(from);
    out.put(to);
  }
}

/// Of flows whose slices are all in the step.
void put_flows(const Timeline& timeline, const std::vector<int32_t>& flows, const Places& places, VarintWriter& out) {
  Arrows to_experts, to_combine;
  for (const int32_t f : flows) {
    const Flow& flow = timeline.flows[static_cast<std::size_t>(f)];
    const auto dispatch = places.find(flow.dispatch), experts = places.find(flow.experts), combine = places.find(flow.combine);
    if (dispatch == places.end() || experts == places.end() || combine == places.end()) continue;
    to_experts.emplace_back(dispatch->second, experts->second);
    to_combine.emplace_back(experts->second, combine->second);
  }
  put_arrows(to_experts, out);
  put_arrows(to_combine, out);
}

/// The two ends of each message that the step has both of.
void put_messages(const Timeline& timeline, const std::vector<int32_t>& slices, VarintWriter& out) {
  using End = std::tuple<Zone, int32_t, int32_t, ExchangeId>;  // zone, source, target, exchange
  std::map<End, uint64_t> sends;
  const auto rank_of = [&](const Slice& slice) { return timeline.lanes[static_cast<std::size_t>(slice.lane)].rank; };
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = timeline.slices[static_cast<std::size_t>(slices[i])];
    if (slice.zone == Zone::kDispatchSend || slice.zone == Zone::kCombineSend)
      sends[{slice.zone, rank_of(slice), static_cast<int32_t>(slice.b), exchange_of(slice)}] = i;
  }
  Arrows messages;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = timeline.slices[static_cast<std::size_t>(slices[i])];
    if (slice.zone != Zone::kDispatchReceive && slice.zone != Zone::kCombineReceive) continue;
    const Zone sent = slice.zone == Zone::kDispatchReceive ? Zone::kDispatchSend : Zone::kCombineSend;
    const auto send = sends.find({sent, static_cast<int32_t>(slice.b), rank_of(slice), exchange_of(slice)});
    if (send != sends.end()) messages.emplace_back(send->second, i);
  }
  put_arrows(messages, out);
}

/// Where a piece ends, as its code says it: with its slice, with the begin of the next piece's, or after so many ns.
uint64_t code_end(const Timeline& timeline, const PathPiece& piece, bool has_slice, const PathPiece* next) {
  const auto slice_of = [&](const PathPiece& p) -> const Slice& { return timeline.slices[static_cast<std::size_t>(p.slice)]; };
  if (has_slice && slice_of(piece).end_ns == piece.end_ns) return 0;
  if (next != nullptr && slice_of(*next).begin_ns == piece.end_ns) return 1;
  return static_cast<uint64_t>(piece.end_ns - piece.begin_ns) + 2;
}

/// `path` are the pieces of one step.
void put_path(const Timeline& timeline, std::span<const PathPiece> path, const Places& places, VarintWriter& out) {
  const auto place_of = [&](const PathPiece& piece) {
    const auto found = places.find(piece.slice);
    return found == places.end() ? int64_t{0} : static_cast<int64_t>(found->second) + 1;
  };
  out.put(path.size());
  for (const PathPiece& piece : path) out.put(static_cast<uint64_t>(piece.kind));
  for (const PathPiece& piece : path) out.put(static_cast<uint64_t>(piece.rank));
  for (const PathPiece& piece : path) out.put(static_cast<uint64_t>(path_piece_peer(timeline, piece) + 1));
  int64_t before = 0;
  for (const PathPiece& piece : path) {
    const int64_t step = place_of(piece) - before;
    out.put(step < 0 ? static_cast<uint64_t>(-2 * step - 1) : static_cast<uint64_t>(2 * step));
    before += step;
  }
  for (std::size_t i = 0; i < path.size(); ++i) {
    const bool has_next = i + 1 < path.size() && place_of(path[i + 1]) > 0;
    out.put(code_end(timeline, path[i], place_of(path[i]) > 0, has_next ? &path[i + 1] : nullptr));
  }
}

}  // namespace

StepColumns::StepColumns(const ReportInput& input) : input_(input), flows_(input.timeline.steps.size()) {
  const Timeline& timeline = input.timeline;
  for (std::size_t l = 0; l < timeline.lanes.size(); ++l) {
    if (timeline.lanes[l].kind != Lane::Kind::kRequest) lanes_.push_back(static_cast<int32_t>(l));
  }
  last_end_ns_.reserve(timeline.slices.size());
  for (std::size_t i = 0; i < timeline.slices.size(); ++i) {
    const Slice& slice = timeline.slices[i];
    const bool is_first = i == 0 || timeline.slices[i - 1].lane != slice.lane;
    last_end_ns_.push_back(is_first ? slice.end_ns : std::max(last_end_ns_.back(), slice.end_ns));
  }
  const StepIndex steps(timeline);
  for (std::size_t f = 0; f < timeline.flows.size(); ++f) {
    const int32_t step = steps.find(timeline.flows[f].step);
    if (step >= 0) flows_[static_cast<std::size_t>(step)].push_back(static_cast<int32_t>(f));
  }
}

std::vector<StepColumns::LaneSlices> StepColumns::find_slices(const StepInfo& step) const {
  const std::vector<Slice>& slices = input_.timeline.slices;
  std::vector<LaneSlices> found;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    const auto [first, last] = input_.timeline.lane_range(lanes_[l]);
    const auto begin = slices.begin();
    auto i = static_cast<int32_t>(std::lower_bound(begin + first, begin + last, step.begin_ns,
                                                   [](const Slice& slice, int64_t at) { return slice.begin_ns < at; }) -
                                  begin);
    while (i > first && last_end_ns_[static_cast<std::size_t>(i - 1)] > step.begin_ns) --i;
    LaneSlices of_lane{.lane = l, .slices = {}};
    for (; i < last && slices[static_cast<std::size_t>(i)].begin_ns < step.end_ns; ++i) {
      if (slices[static_cast<std::size_t>(i)].end_ns > step.begin_ns) of_lane.slices.push_back(i);
    }
    if (!of_lane.slices.empty()) found.push_back(std::move(of_lane));
  }
  return found;
}

std::size_t StepColumns::count_slices(std::size_t step) const {
  std::size_t count = 0;
  for (const LaneSlices& lane : find_slices(input_.timeline.steps[step])) count += lane.slices.size();
  return count;
}

std::string StepColumns::pack(std::size_t step) const {
  const Timeline& timeline = input_.timeline;
  const std::vector<LaneSlices> lanes = find_slices(timeline.steps[step]);
  const auto at = [&](int32_t i) -> const Slice& { return timeline.slices[static_cast<std::size_t>(i)]; };
  std::vector<int32_t> slices;
  Places places;
  int64_t begin_ns = timeline.steps[step].begin_ns;
  for (const LaneSlices& lane : lanes) begin_ns = std::min(begin_ns, at(lane.slices.front()).begin_ns);
  VarintWriter out;
  out.put(static_cast<uint64_t>(timeline.steps[step].begin_ns - begin_ns));
  out.put(lanes.size());
  for (const LaneSlices& lane : lanes) {
    out.put(lane.lane);
    out.put(lane.slices.size());
    for (const int32_t i : lane.slices) {
      places[i] = slices.size();
      slices.push_back(i);
    }
  }
  const auto put_column = [&](auto&& value) {
    for (const int32_t i : slices) out.put(static_cast<uint64_t>(value(at(i))));
  };
  put_column([](const Slice& slice) { return static_cast<uint8_t>(slice.zone); });
  put_column([](const Slice& slice) { return static_cast<uint16_t>(slice.layer + 1); });
  put_column([](const Slice& slice) { return slice.micro_batch; });
  put_column([](const Slice& slice) { return slice.a; });
  put_column([](const Slice& slice) { return slice.b; });
  for (const LaneSlices& lane : lanes) {
    int64_t before_ns = begin_ns;
    for (const int32_t i : lane.slices) {
      out.put(static_cast<uint64_t>(at(i).begin_ns - before_ns));
      before_ns = at(i).begin_ns;
    }
  }
  put_column([](const Slice& slice) { return slice.duration_ns(); });
  put_column([](const Slice& slice) { return (slice.is_handed_over ? 1 : 0) | (slice.is_continued ? 2 : 0); });
  put_flows(timeline, flows_[step], places, out);
  put_messages(timeline, slices, out);
  const auto& path = input_.critical_path;
  const auto of_step = static_cast<int32_t>(step);
  const auto begin = std::ranges::lower_bound(path, of_step, {}, &PathPiece::step);
  put_path(timeline, {begin, std::ranges::upper_bound(path, of_step, {}, &PathPiece::step)}, places, out);
  return out.bytes();
}

}  // namespace ferry
