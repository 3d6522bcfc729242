#include "runtime/actions/replayed_steps.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <unordered_map>

#include "profiler/report/lost_time/exchanges.h"
#include "profiler/report/statistics.h"
#include "profiler/report/timeline/step_slices.h"
#include "runtime/actions/nonnegative_fit.h"
#include "runtime/actions/roofs.h"

namespace ferry {
namespace {

double to_s(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// Slices of an operator on a rank, of about as many rows: what each should take by its rows and its second count, and by how
/// much quick ones are quicker than that.
class LikeSlices {
 public:
  void add(int32_t rank, const Slice& slice) {
    points_[key(rank, slice)].push_back({{1, static_cast<double>(slice.a), static_cast<double>(slice.b)}, to_s(slice.self_ns)});
  }
  /// By how much all of its like would be shorter, were they all as quick as the first quarter: at most 1.
  void close() {
    for (auto& [key, points] : points_) {
      const auto [fixed, of_a, of_b] = fit_nonnegative(points);
      std::vector<double> shares;
      for (const FitPoint& p : points) {
        const double expected = fixed + of_a * p.x[1] + of_b * p.x[2];
        shares.push_back(expected > 0 ? p.y / expected : 1);
      }
      shares_[key] = std::min(1.0, percentile(shares, 0.25));
    }
  }
  double share(int32_t rank, const Slice& slice) const {
    const auto found = shares_.find(key(rank, slice));
    return found == shares_.end() ? 1 : found->second;
  }

 private:
  using Key = std::tuple<int32_t, Zone, int, bool>;
  static Key key(int32_t rank, const Slice& slice) {
    return {rank, slice.zone, std::bit_width(slice.a), zone_info(slice.zone).kind == ZoneKind::kCompute};
  }
  std::map<Key, std::vector<FitPoint>> points_;
  std::map<Key, double> shares_;
};

/// Rows of sequences that had their first token before the step began, by step number.
std::unordered_map<uint32_t, double> find_decoding(const Timeline& timeline, const std::vector<ReplayedStep>& steps) {
  std::unordered_map<uint32_t, int64_t> begins;
  for (const ReplayedStep& s : steps) begins[timeline.steps[s.index].step] = timeline.steps[s.index].begin_ns;
  std::unordered_map<uint32_t, double> decoding;
  for (const RequestInfo& request : timeline.requests) {
    for (const uint32_t step : request.steps) {
      const auto begin = begins.find(step);
      if (begin == begins.end()) continue;
      const bool began_before = !request.first_token_ns && !request.first_scheduled_ns;
      if (began_before || (request.first_token_ns && *request.first_token_ns <= begin->second)) decoding[step] += 1;
    }
  }
  return decoding;
}

void count_rows(const Timeline& timeline, std::vector<ReplayedStep>& steps) {
  const std::unordered_map<uint32_t, double> decoding = find_decoding(timeline, steps);
  for (ReplayedStep& s : steps) {
    const StepInfo& step = timeline.steps[s.index];
    const auto tokens = static_cast<double>(step.num_tokens);
    switch (step.phase) {
      case Phase::kDecode: s.decode_rows = tokens, s.sequences = static_cast<double>(step.num_sequences); break;
      case Phase::kPrefill: s.prefill_rows = tokens; break;
      case Phase::kMixed: {
        const auto found = decoding.find(step.step);
        const double sequences = found == decoding.end() ? static_cast<double>(step.num_sequences) - 1 : found->second;
        s.decode_rows = std::min(tokens, sequences + static_cast<double>(step.num_drafts));
        s.prefill_rows = tokens - s.decode_rows;
        s.sequences = sequences;
        break;
      }
    }
  }
}

/// What reading keys takes the steps, and their guesses with one row of each sequence.
class KeyReads {
 public:
  KeyReads(const std::vector<std::string>& layer_types, std::vector<ReplayedStep>& steps)
      : num_layers_(std::max<double>(1, static_cast<double>(std::ranges::count(layer_types, "full_attention")))),
        steps_(steps),
        own_(steps.size()),
        guesses_(steps.size()) {}

  void add(std::size_t i, const Slice& slice, bool is_draft) {
    if (slice.zone != Zone::kAttention) return;
    if (is_draft && slice.a != static_cast<uint32_t>(steps_[i].sequences)) return;
    Sum& sum = is_draft ? guesses_[i] : own_[i];
    sum.count += 1, sum.keys += slice.b, sum.seconds += to_s(slice.self_ns);
  }
  void close() {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (own_[i].count > 0) steps_[i].row_keys = own_[i].keys / own_[i].count, steps_[i].keys = own_[i].seconds;
      if (guesses_[i].count > 0) steps_[i].guess_keys = num_layers_ * guesses_[i].seconds / guesses_[i].count;
    }
  }

 private:
  struct Sum {
    double count = 0, seconds = 0, keys = 0;
  };

  const double num_layers_;
  std::vector<ReplayedStep>& steps_;
  std::vector<Sum> own_, guesses_;  // [steps]
};

/// Adds what of a slice's time few rows more do not make longer.
void add_unchanging(const std::vector<OperatorFacts>& operators, const Slice& slice, double StepParts::*part,
                    ReplayedStep& step) {
  const double seconds = to_s(slice.self_ns);
  const OperatorFacts* facts = find_operator(operators, slice.zone);
  if (slice.zone == Zone::kStep || slice.zone == Zone::kSchedule || slice.zone == Zone::kPublish)
    step.once.*part += seconds;
  else if (facts != nullptr && multiplies_weights(*facts))
    step.weights.*part += seconds;
}

using Calls = std::map<std::pair<int32_t, ExchangeId>, ExpertCall>;  // by rank

/// A worker is busy with more than its operators.
void set_busy_times(const ReportInput& input, Calls& calls) {
  for (const Exchanges exchanges = find_exchanges(input); const SeenExchange& exchange : exchanges.list) {
    for (const Reply& reply : exchanges.replies_of(exchange)) {
      const auto found = calls.find({reply.rank, exchange.id});
      if (found != calls.end()) found->second.seconds = std::max(found->second.seconds, to_s(reply.work_ns()));
    }
  }
}

}  // namespace

double StepParts::*part_of(Zone zone, bool has_workers) {
  if (is_peer_wait(zone)) return &StepParts::exchange;
  if (zone == Zone::kPublish) return &StepParts::sample;
  switch (zone_info(zone).part) {
    case Part::kSharedExpert: return &StepParts::shared;
    case Part::kHead: return &StepParts::head;
    case Part::kSample: return &StepParts::sample;
    case Part::kExperts: return &StepParts::experts;
    case Part::kDispatch:
    case Part::kCombine: return has_workers ? &StepParts::exchange : &StepParts::experts;
    default: return &StepParts::own;
  }
}

void StepParts::add(const StepParts& other, double weight) {
  own += weight * other.own;
  shared += weight * other.shared;
  head += weight * other.head;
  sample += weight * other.sample;
  draft += weight * other.draft;
  experts += weight * other.experts;
  exchange += weight * other.exchange;
}

std::vector<ReplayedStep> replay_steps(const ReportInput& input) {
  const Timeline& timeline = input.timeline;
  std::vector<ReplayedStep> steps(timeline.steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i].index = i;
  count_rows(timeline, steps);
  LikeSlices like;
  for_each_step_slice(timeline, [&](std::size_t, const Slice& slice) { like.add(0, slice); });
  like.close();
  const bool has_workers = input.capture.info.world_size > 1;
  std::size_t drafting_step = steps.size();
  int64_t drafting_until = -1;
  KeyReads keys(input.capture.info.model.layer_types, steps);
  for_each_step_slice(timeline, [&](std::size_t i, const Slice& slice) {
    if (slice.zone == Zone::kDraft) drafting_step = i, drafting_until = slice.end_ns;
    const bool is_draft = drafting_step == i && slice.begin_ns < drafting_until;
    const auto part = part_of(slice.zone, has_workers);
    const double seconds = to_s(slice.self_ns);
    steps[i].parts.*(is_draft ? &StepParts::draft : part) += seconds;
    steps[i].quiet.*(is_draft ? &StepParts::draft : part) += seconds * (slice.zone == Zone::kStep ? 1 : like.share(0, slice));
    if (!is_draft) add_unchanging(input.capture.info.model.operators, slice, part, steps[i]);
    keys.add(i, slice, is_draft);
  });
  keys.close();
  return steps;
}

std::vector<ExpertCall> find_expert_calls(const ReportInput& input) {
  const Timeline& timeline = input.timeline;
  const StepIndex index(timeline);
  LikeSlices like;
  const std::vector<std::string>& types = input.capture.info.model.layer_types;
  const auto guesses = [&](int32_t layer) {
    return layer < std::ssize(types) && types[static_cast<std::size_t>(layer)] == "mtp";
  };
  const auto is_expert_work = [&](const Slice& slice) {
    return zone_info(slice.zone).part == Part::kExperts && zone_info(slice.zone).kind == ZoneKind::kCompute &&
           !slice.is_handed_over && slice.layer >= 0 && !guesses(slice.layer);
  };
  const auto rank_of = [&](const Slice& slice) { return timeline.lanes[static_cast<std::size_t>(slice.lane)].rank; };
  for (const Slice& slice : timeline.slices)
    if (is_expert_work(slice)) like.add(rank_of(slice), slice);
  like.close();
  Calls calls;
  for (const Slice& slice : timeline.slices) {
    if (!is_expert_work(slice)) continue;
    const int32_t step = index.find(slice.step);
    if (step < 0) continue;
    ExpertCall& call = calls[{rank_of(slice), exchange_of(slice)}];
    call.id = exchange_of(slice);
    call.step = static_cast<std::size_t>(step);
    call.rank = rank_of(slice);
    call.layer = slice.layer;
    if (slice.zone == Zone::kGroupedGateUp) call.rows = slice.a, call.touched = slice.b;
    call.seconds += to_s(slice.self_ns);
    call.quiet += to_s(slice.self_ns) * like.share(call.rank, slice);
  }
  set_busy_times(input, calls);
  std::vector<ExpertCall> list;
  list.reserve(calls.size());
  for (const auto& [key, call] : calls)
    if (call.rows > 0) list.push_back(call);
  return list;
}

}  // namespace ferry
