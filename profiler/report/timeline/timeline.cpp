#include "profiler/report/timeline/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>

#include "profiler/report/timeline/device_time.h"
#include "profiler/report/timeline/intervals.h"
#include "profiler/report/timeline/lanes.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

// As runtime/schedule/request.h numbers them.
constexpr const char* kFinishReasons[] = {"", "stop", "length", "abort", "deadline", "error"};

/// A record on the common clock, cut to its rank's capture.
struct Placed {
  Slice slice;
  bool is_cut_at_begin = false;
};

/// Ticks of a rank to nanoseconds since the capture's first moment.
class RankTime {
 public:
  RankTime(const RankCapture& rank, int64_t origin_ns) : rank_(rank), origin_ns_(origin_ns) {}
  int64_t operator()(uint64_t ticks) const { return rank_.alignment.to_coordinator_ns(rank_.ticks.to_ns(ticks)) - origin_ns_; }

 private:
  const RankCapture& rank_;
  int64_t origin_ns_;
};

/// Builds the timeline rank by rank, then what connects ranks.
class TimelineBuilder {
 public:
  explicit TimelineBuilder(const Capture& capture) : capture_(capture) {}

  Timeline build() {
    find_bounds();
    for (const RankCapture& rank : capture_.ranks) add_rank(rank);
    finish_requests();
    place_sections();
    place_drafts();
    connect();
    std::stable_sort(timeline_.counters.begin(), timeline_.counters.end(),
                     [](const CounterSample& x, const CounterSample& y) { return x.at_ns < y.at_ns; });
    return std::move(timeline_);
  }

 private:
  using TransferKey = std::tuple<Zone, int32_t, int32_t, ExchangeId>;  // zone, rank, peer, exchange

  void find_bounds();
  void add_rank(const RankCapture& rank);
  bool place(const RankCapture& rank, const RankTime& time, const SpanRecord& record, Placed& placed) const;
  void add_step(const Placed& placed);
  void add_device_lane(const RankCapture& rank, const RankTime& time, const ThreadCapture& device, int64_t tid);
  double need_of(const Slice& slice) const;
  void add_transfer_lanes(int32_t rank, std::map<std::pair<bool, int32_t>, std::vector<std::vector<Slice>>>& transfers);
  void note_request(const Placed& placed);
  void add_section(const Slice& slice);
  void place_sections();
  void place_drafts();
  void finish_requests();
  void connect();
  void pair_messages();

  const Capture& capture_;
  Timeline timeline_;
  int64_t origin_ns_ = 0;
  std::unordered_map<uint32_t, RequestInfo> requests_;
  struct Verified {
    int64_t num_drafts = 0, num_kept = 0;
  };
  std::unordered_map<uint32_t, Verified> verified_;  // by step
  std::unordered_map<uint32_t, int64_t> sequences_;  // by step
  std::map<TransferKey, Slice> transfers_;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Interval>> sections_;  // by the span's a and b
};

void TimelineBuilder::find_bounds() {
  bool is_first = true;
  int64_t end_ns = 0;
  for (const RankCapture& rank : capture_.ranks) {
    timeline_.clock_bound_ns = std::max(timeline_.clock_bound_ns, rank.alignment.bound_ns);
    if (rank.threads.empty()) continue;  // lost before it could hand in what it recorded
    const RankTime time(rank, 0);
    origin_ns_ = is_first ? time(rank.begin) : std::min(origin_ns_, time(rank.begin));
    end_ns = is_first ? time(rank.end) : std::max(end_ns, time(rank.end));
    is_first = false;
  }
  timeline_.origin_ns = origin_ns_;
  timeline_.end_ns = end_ns - origin_ns_;
}

bool TimelineBuilder::place(const RankCapture& rank, const RankTime& time, const SpanRecord& record, Placed& placed) const {
  if (record.end < rank.begin || record.begin > rank.end) return false;
  placed.is_cut_at_begin = record.begin < rank.begin;
  placed.slice = {.zone = record.zone,
                  .micro_batch = record.micro_batch,
                  .layer = record.layer,
                  .step = record.step,
                  .a = record.a,
                  .b = record.b,
                  .begin_ns = time(std::max(record.begin, rank.begin)),
                  .end_ns = time(std::min(record.end, rank.end))};
  return true;
}

void TimelineBuilder::add_rank(const RankCapture& rank) {
  const RankTime time(rank, origin_ns_);
  std::map<std::pair<bool, int32_t>, std::vector<std::vector<Slice>>> transfers;  // (is receive, peer) -> messages
  std::map<uint32_t, std::vector<Slice>> requests;
  for (const ThreadCapture& thread : rank.threads) {
    if (thread.is_device) continue;
    std::vector<Slice> on_thread;
    for (const SpanRecord& record : thread.records) {
      Placed placed;
      if (!place(rank, time, record, placed)) continue;
      const Slice& slice = placed.slice;
      switch (zone_info(slice.zone).kind) {
        case ZoneKind::kCounter:
          timeline_.counters.push_back(
              {rank.rank, slice.zone, slice.b, slice.begin_ns, slice.end_ns, slice.a, exchange_of(slice)});
          break;
        case ZoneKind::kTransfer: {
          const bool is_receive = slice.zone == Zone::kDispatchReceive || slice.zone == Zone::kCombineReceive;
          transfers[{is_receive, static_cast<int32_t>(slice.b)}].push_back({slice});
          transfers_.insert({{slice.zone, rank.rank, static_cast<int32_t>(slice.b), exchange_of(slice)}, slice});
          break;
        }
        case ZoneKind::kRequest:
          requests[slice.a].push_back(slice);
          note_request(placed);
          break;
        case ZoneKind::kSection: add_section(slice); break;
        case ZoneKind::kStep:
          add_step(placed);
          on_thread.push_back(slice);
          break;
        default: on_thread.push_back(slice);
      }
    }
    append_lane(timeline_, {rank.rank, Lane::Kind::kThread, thread.name, thread.tid}, std::move(on_thread));
  }
  int64_t device_tid = 500;
  for (const ThreadCapture& thread : rank.threads) {
    if (thread.is_device) add_device_lane(rank, time, thread, ++device_tid);
  }
  add_transfer_lanes(rank.rank, transfers);
  std::vector<std::vector<Slice>> by_request;
  for (auto& [id, slices] : requests) by_request.push_back(std::move(slices));
  int64_t number = 0;
  for (std::vector<Slice>& lane : share_lanes(std::move(by_request))) {
    ++number;
    append_lane(timeline_, {rank.rank, Lane::Kind::kRequest, "requests " + std::to_string(number), 2000 + number},
                std::move(lane));
  }
}

/// Behind the lanes of the rank's threads: operators that the device ran were handed over there.
void TimelineBuilder::add_device_lane(const RankCapture& rank, const RankTime& time, const ThreadCapture& device, int64_t tid) {
  std::vector<Slice> slices;
  std::vector<double> needs;
  std::array<bool, kNumZones> is_run_here{};
  for (const SpanRecord& record : device.records) {
    Placed placed;
    if (zone_info(record.zone).kind != ZoneKind::kCompute || !place(rank, time, record, placed)) continue;
    placed.slice.is_continued = (record.micro_batch & kContinuedBit) != 0;
    placed.slice.micro_batch = record.micro_batch & static_cast<uint8_t>(~kContinuedBit);
    is_run_here[static_cast<std::size_t>(record.zone)] = true;
    needs.push_back(need_of(placed.slice));
    slices.push_back(placed.slice);
  }
  for (Slice& slice : timeline_.slices) {
    const Lane& lane = timeline_.lanes[static_cast<std::size_t>(slice.lane)];
    if (lane.rank == rank.rank && lane.kind == Lane::Kind::kThread)
      slice.is_handed_over |= is_run_here[static_cast<std::size_t>(slice.zone)];
  }
  append_lane(timeline_, {rank.rank, Lane::Kind::kDevice, device.name, tid}, share_device_time(slices, needs));
}

/// Bytes that an operator moves at least; 0 if nothing is known.
double TimelineBuilder::need_of(const Slice& slice) const {
  if (slice.zone == Zone::kDeviceCopy) return slice.a;
  const OperatorFacts* facts = find_operator(capture_.info.model.operators, slice.zone);
  if (facts == nullptr) return 0;
  const auto sequences = sequences_.find(slice.step);
  return facts->bytes.of(facts->counts(slice.a, slice.b, sequences == sequences_.end() ? 1 : sequences->second));
}

void TimelineBuilder::add_transfer_lanes(int32_t rank,
                                         std::map<std::pair<bool, int32_t>, std::vector<std::vector<Slice>>>& transfers) {
  int64_t tid = 1000;
  for (auto& [key, messages] : transfers) {
    const std::string name = (key.first ? "from rank " : "to rank ") + std::to_string(key.second);
    int number = 0;
    for (std::vector<Slice>& lane : share_lanes(std::move(messages))) {
      ++number;
      append_lane(timeline_,
                  {rank, Lane::Kind::kTransfer, number == 1 ? name : name + " (" + std::to_string(number) + ")", ++tid},
                  std::move(lane));
    }
  }
}

void TimelineBuilder::add_step(const Placed& placed) {
  if (placed.is_cut_at_begin) return;
  const Slice& slice = placed.slice;
  timeline_.steps.push_back({.step = slice.step,
                             .phase = plan_phase(slice.b),
                             .begin_ns = slice.begin_ns,
                             .end_ns = slice.end_ns,
                             .num_tokens = slice.a,
                             .num_sequences = plan_sequences(slice.b)});
  sequences_[slice.step] = plan_sequences(slice.b);
}

void TimelineBuilder::note_request(const Placed& placed) {
  const Slice& slice = placed.slice;
  RequestInfo& request = requests_[slice.a];
  request.request = slice.a;
  const auto begin = placed.is_cut_at_begin ? std::nullopt : std::optional<int64_t>(slice.begin_ns);
  switch (slice.zone) {
    case Zone::kRequestTokenize:
      request.arrival_ns = begin;
      request.queued_ns = slice.end_ns;
      request.num_prompt = slice.b;
      break;
    case Zone::kRequestQueue:
      request.queued_ns = begin;
      request.first_scheduled_ns = slice.end_ns;
      request.num_prompt = slice.b;
      break;
    case Zone::kRequestPrefill:
      request.first_scheduled_ns = begin;
      request.first_token_ns = slice.end_ns;
      request.num_prompt = slice.b;
      break;
    case Zone::kRequestDecode:
      request.first_token_ns = begin;
      request.num_generated = slice.b;
      break;
    case Zone::kRequestPreempted:
      ++request.num_preemptions;
      request.first_preempted_ns = std::min(request.first_preempted_ns.value_or(slice.begin_ns), slice.begin_ns);
      request.preempted_ns += slice.end_ns - slice.begin_ns;
      break;
    case Zone::kRequestStep: request.steps.push_back(slice.step); break;
    case Zone::kRequestVerify:
      request.steps.push_back(slice.step);
      verified_[slice.step].num_drafts += verify_drafts(slice.b);
      verified_[slice.step].num_kept += verify_kept(slice.b);
      break;
    case Zone::kRequestFinish:
      request.finished_ns = slice.end_ns;
      request.finish_reason = slice.b < std::size(kFinishReasons) ? kFinishReasons[slice.b] : "";
      break;
    default: FERRY_CHECK(false) << " zone " << zone_info(slice.zone).name;
  }
}

/// Tells each step what its requests say of their drafts.
void TimelineBuilder::place_drafts() {
  for (StepInfo& step : timeline_.steps) {
    const auto found = verified_.find(step.step);
    if (found == verified_.end()) continue;
    step.num_drafts = found->second.num_drafts;
    step.num_kept = found->second.num_kept;
  }
}

void TimelineBuilder::add_section(const Slice& slice) {
  if (slice.duration_ns() > 0) sections_[{slice.a, slice.b}].push_back({slice.begin_ns, slice.end_ns});
}

/// Puts sections in order and gives each step the one that it began in.
void TimelineBuilder::place_sections() {
  for (auto& [what, stretches] : sections_) {
    timeline_.sections.push_back({.role = section_role(what.second),
                                  .phase = section_phase(what.second),
                                  .size = what.first,
                                  .stretches = make_interval_set(std::move(stretches))});
  }
  std::sort(timeline_.sections.begin(), timeline_.sections.end(),
            [](const SectionInfo& x, const SectionInfo& y) { return x.stretches.front().begin < y.stretches.front().begin; });
  std::vector<std::pair<Interval, int32_t>> stretches;  // of all sections, by begin
  for (std::size_t s = 0; s < timeline_.sections.size(); ++s) {
    for (const Interval& stretch : timeline_.sections[s].stretches) stretches.emplace_back(stretch, static_cast<int32_t>(s));
  }
  std::sort(stretches.begin(), stretches.end(), [](const auto& x, const auto& y) { return x.first.begin < y.first.begin; });
  for (StepInfo& step : timeline_.steps) {
    const auto next = std::partition_point(stretches.begin(), stretches.end(),
                                           [&](const auto& stretch) { return stretch.first.begin <= step.begin_ns; });
    if (next != stretches.begin() && step.begin_ns < std::prev(next)->first.end) step.section = std::prev(next)->second;
  }
}

void TimelineBuilder::finish_requests() {
  for (auto& [id, request] : requests_) {
    std::sort(request.steps.begin(), request.steps.end());
    timeline_.requests.push_back(std::move(request));
  }
  std::sort(timeline_.requests.begin(), timeline_.requests.end(),
            [](const RequestInfo& x, const RequestInfo& y) { return x.request < y.request; });
  std::sort(timeline_.steps.begin(), timeline_.steps.end(),
            [](const StepInfo& x, const StepInfo& y) { return x.begin_ns < y.begin_ns; });
}

/// Arrows: the same exchange and worker on three slices.
void TimelineBuilder::connect() {
  using Key = std::tuple<int32_t, ExchangeId, int32_t>;  // coordinator, exchange, worker
  std::map<Key, Flow> flows;
  std::map<std::pair<int32_t, ExchangeId>, int32_t> combines;
  for (std::size_t i = 0; i < timeline_.slices.size(); ++i) {
    const Slice& slice = timeline_.slices[i];
    const int32_t rank = timeline_.lanes[static_cast<std::size_t>(slice.lane)].rank;
    const auto at = static_cast<int32_t>(i);
    const auto peer = static_cast<int32_t>(slice.b);
    if (slice.zone == Zone::kDispatch) {
      flows[{rank, exchange_of(slice), peer}].dispatch = at;
    } else if (slice.zone == Zone::kExperts && peer != rank) {
      flows[{peer, exchange_of(slice), rank}].experts = at;
    } else if (slice.zone == Zone::kCombine) {
      combines[{rank, exchange_of(slice)}] = at;
    }
  }
  for (auto& [key, flow] : flows) {
    const auto [coordinator, exchange, peer] = key;
    const auto combine = combines.find({coordinator, exchange});
    if (flow.dispatch < 0 || flow.experts < 0 || combine == combines.end()) continue;
    flow.id = timeline_.flows.size() + 1;
    flow.step = exchange.step;
    flow.layer = exchange.layer;
    flow.micro_batch = exchange.micro_batch;
    flow.peer = peer;
    flow.combine = combine->second;
    timeline_.flows.push_back(flow);
  }
  pair_messages();
}

void TimelineBuilder::pair_messages() {
  std::size_t num_paired = 0;
  for (const auto& [key, sent] : transfers_) {
    const auto& [zone, rank, peer, exchange] = key;
    const bool is_dispatch = zone == Zone::kDispatchSend;
    if (!is_dispatch && zone != Zone::kCombineSend) continue;
    const Zone other = is_dispatch ? Zone::kDispatchReceive : Zone::kCombineReceive;
    const auto received = transfers_.find({other, peer, rank, exchange});
    if (received == transfers_.end()) continue;
    num_paired += 2;
    timeline_.messages.push_back({.step = exchange.step,
                                  .layer = exchange.layer,
                                  .micro_batch = exchange.micro_batch,
                                  .is_dispatch = is_dispatch,
                                  .source = rank,
                                  .target = peer,
                                  .bytes = sent.a,
                                  .send_begin_ns = sent.begin_ns,
                                  .send_end_ns = sent.end_ns,
                                  .receive_begin_ns = received->second.begin_ns,
                                  .receive_end_ns = received->second.end_ns});
    const int64_t early_ns = sent.begin_ns - received->second.end_ns;
    timeline_.worst_violation_ns = std::max(timeline_.worst_violation_ns, early_ns);
    const auto bound = [&](int32_t r) { return capture_.ranks.at(static_cast<std::size_t>(r)).alignment.bound_ns; };
    if (static_cast<double>(early_ns) > bound(rank) + bound(peer)) ++timeline_.num_causality_violations;
  }
  timeline_.num_unpaired = static_cast<int64_t>(transfers_.size() - num_paired);
  std::sort(timeline_.messages.begin(), timeline_.messages.end(),
            [](const Message& x, const Message& y) { return x.send_begin_ns < y.send_begin_ns; });
}

}  // namespace

std::pair<int32_t, int32_t> Timeline::lane_range(int32_t lane) const {
  const auto before = [](const Slice& slice, int32_t l) { return slice.lane < l; };
  const auto first = std::lower_bound(slices.begin(), slices.end(), lane, before);
  const auto last = std::lower_bound(first, slices.end(), lane + 1, before);
  return {static_cast<int32_t>(first - slices.begin()), static_cast<int32_t>(last - slices.begin())};
}

const StepInfo* Timeline::step_at(int64_t at_ns) const {
  const auto after =
      std::upper_bound(steps.begin(), steps.end(), at_ns, [](int64_t at, const StepInfo& step) { return at < step.begin_ns; });
  if (after == steps.begin()) return nullptr;
  const StepInfo& step = *(after - 1);
  return at_ns < step.end_ns ? &step : nullptr;
}

std::string SectionInfo::name() const {
  if (role == SectionRole::kAside) return "aside";
  return work_name(phase, size) + (role == SectionRole::kWarmUp ? " warm-up" : "");
}

Timeline make_timeline(const Capture& capture) { return TimelineBuilder(capture).build(); }

}  // namespace ferry
