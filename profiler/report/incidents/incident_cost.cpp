#include "profiler/report/incidents/incident_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "profiler/report/incidents/like_steps.h"
#include "profiler/report/statistics.h"

namespace ferry {
namespace {

using DispatchKey = std::tuple<uint32_t, int16_t, uint8_t>;
DispatchKey dispatch_key(const ExchangeId& id) { return {id.step, id.layer, id.micro_batch}; }

using PartTimes = std::array<int64_t, kNumCostParts>;

int64_t& time_of(PartTimes& times, CostPart part) { return times[static_cast<std::size_t>(part)]; }

/// What tells that a step was struck, by its index.
struct Traces {
  PartTimes times{};
  int64_t rows_by_workers = 0, rows_by_coordinator = 0, experts_read = 0;
  bool has_trouble = false;    // a worker was doubted or lost, rows were answered by others, or experts read here
  bool has_placement = false;  // a placement was seen to
};

/// Looks through a capture once for what coordinators do in incidents only.
class TraceFinder {
 public:
  TraceFinder(const Timeline& timeline, const WorkerHistory& history) : timeline_(timeline), history_(history) {
    for (const WorkerEvent& event : history.events) {
      if (is_trouble(event)) look_at(event.at_ns, [](Traces& traces) { traces.has_trouble = true; });
    }
    for (const PlacementChange& change : history.placements) {
      look_at(change.when.begin, [&](Traces& traces) {
        traces.has_placement = true;
        time_of(traces.times, CostPart::kPlacement) += change.when.end - change.when.begin;
      });
    }
    for (const CounterSample& sample : timeline.counters) take(sample);
    for (const Slice& slice : timeline.slices) {
      if (timeline.lanes[static_cast<std::size_t>(slice.lane)].rank == 0) take(slice);
    }
  }

  const std::map<std::size_t, Traces>& steps() const { return steps_; }

 private:
  template <class Act>
  void look_at(int64_t at_ns, Act&& act) {
    const StepInfo* step = timeline_.step_at(at_ns);
    if (step != nullptr) act(steps_[static_cast<std::size_t>(step - timeline_.steps.data())]);
  }

  void take(const CounterSample& sample) {
    if (sample.zone != Zone::kCoveredRows || sample.rank != 0) return;
    look_at(sample.since_ns, [&](Traces& traces) {
      traces.has_trouble = true;
      (sample.b == 0 ? traces.rows_by_coordinator : traces.rows_by_workers) += sample.value;
      if (sample.b == 0) time_of(traces.times, CostPart::kComputed) += sample.at_ns - sample.since_ns;
    });
    if (sample.b != 0) asked_again_.insert({dispatch_key(sample.at), sample.at_ns});  // the first one stays
  }

  void take(const Slice& slice) {
    if (slice.zone == Zone::kReadExperts) {
      look_at(slice.begin_ns, [&](Traces& traces) {
        traces.has_trouble = true;
        traces.experts_read += slice.a;
        time_of(traces.times, CostPart::kRead) += slice.duration_ns();
        time_of(traces.times, CostPart::kComputed) -= slice.duration_ns();  // it is inside of that
      });
    } else if (slice.zone == Zone::kWaitCombine) {
      look_at(slice.begin_ns, [&](Traces& traces) {
        const auto again = asked_again_.find(dispatch_key(exchange_of(slice)));
        if (again != asked_again_.end() && slice.begin_ns >= again->second) {
          time_of(traces.times, CostPart::kResent) += slice.duration_ns();
        } else if (was_in_vain(slice, history_)) {
          time_of(traces.times, CostPart::kWaited) += slice.duration_ns();
        }
      });
    }
  }

  const Timeline& timeline_;
  const WorkerHistory& history_;
  std::map<std::size_t, Traces> steps_;
  std::map<DispatchKey, int64_t> asked_again_;  // since when rows of it were under way a second time
};

/// Of sums of some steps beside the means of others, each sort by itself.
class NoiseSum {
 public:
  void add(const StepSort& sort, const std::vector<double>& like) {
    Sort& of = sorts_[sort];
    ++of.steps;
    if (of.like > 0) return;
    of.like = static_cast<double>(like.size());
    const double usual = mean(like);
    for (const double length : like) of.variance += (length - usual) * (length - usual) / (of.like - 1);
  }
  /// The standard deviation.
  double get() const {
    double sum = 0;
    for (const auto& [sort, of] : sorts_) sum += of.variance * (of.steps + of.steps * of.steps / of.like);
    return std::sqrt(sum);
  }

 private:
  struct Sort {
    double steps = 0, like = 0, variance = 0;
  };
  std::map<StepSort, Sort> sorts_;
};

/// Whether the quarters of one run of steps, by their medians, all lie on one side of the other's. What comes and goes within
/// either, as when a machine has other work, does not set them apart.
bool lie_apart(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr std::size_t kQuarters = 4;
  if (std::min(a.size(), b.size()) < 2 * kQuarters) return true;  // too few to tell
  std::vector<double> medians[2];
  for (std::size_t q = 0; q < kQuarters; ++q) {
    for (const bool is_b : {false, true}) {
      const std::vector<double>& steps = is_b ? b : a;
      const auto at = [&](std::size_t part) {
        return steps.begin() + static_cast<std::ptrdiff_t>(part * steps.size() / kQuarters);
      };
      medians[is_b ? 1 : 0].push_back(median({at(q), at(q + 1)}));
    }
  }
  const auto [least_a, most_a] = std::ranges::minmax(medians[0]);
  const auto [least_b, most_b] = std::ranges::minmax(medians[1]);
  return most_a < least_b || most_b < least_a;
}

/// Steps of several sorts, by how they stand beside others.
class SlowdownSum {
 public:
  void add(const std::vector<double>& lengths, const std::vector<double>& like) {
    const auto n = static_cast<double>(lengths.size());
    slowdown_.steps += std::ssize(lengths);
    if (like.size() < LikeSteps::kFewest || lengths.empty()) return;
    const double usual = median(like);
    slowdown_.compared += std::ssize(lengths);
    if (lengths.size() > most_) {
      most_ = lengths.size();
      lie_apart_ = lie_apart(lengths, like);
    }
    slowdown_.more_ns += n * (mean(lengths) - mean(like));
    slowdown_.usual_ns += n * usual;
    slowdown_.usually_more_ns += n * (median(lengths) - usual);
    for (const double length : lengths) above_ += length > usual ? 0.5 : length < usual ? -0.5 : 0;
    variance_ += kAlike * n * n * (0.25 / n + 0.25 / static_cast<double>(like.size()));
  }

  /// As told if more or fewer of the steps are above the others' median than in 1 of 300 such samples by chance, on the side to
  /// which their own medians lie, by a hundredth at least; and if those of the commonest sort lie apart.
  Slowdown get() const {
    constexpr double kSigmas = 3, kLeastShare = 0.01;
    Slowdown slowdown = slowdown_;
    slowdown.is_told = lie_apart_ && variance_ > 0 && std::abs(above_) > kSigmas * std::sqrt(variance_) &&
                       above_ * slowdown.usually_more_ns > 0 && std::abs(slowdown.share()) >= kLeastShare;
    return slowdown;
  }

 private:
  static constexpr double kAlike = 2;  // steps in a row are long for the same reason: two count as one

  Slowdown slowdown_;
  std::size_t most_ = 0;             // steps of a sort
  bool lie_apart_ = false;           // of that sort
  double above_ = 0, variance_ = 0;  // steps above the medians less half of them; of that
};

bool has_trouble(const Incident& incident) {
  return std::ranges::any_of(incident.parts, [](const Incident::Part& part) { return part.cause <= IncidentCause::kLate; });
}

class CostFinder {
 public:
  CostFinder(const Timeline& timeline, const std::map<std::size_t, Traces>& traces, const LikeSteps& like)
      : timeline_(timeline), traces_(traces), like_(like) {}

  IncidentCost find(const Incident& incident, std::size_t idx) const {
    IncidentCost cost;
    std::map<StepSort, std::vector<double>> meanwhile;
    NoiseSum struck_noise, noise;
    for (std::size_t s = incident.first_step; s < incident.last_step; ++s) {
      const StepInfo& step = timeline_.steps[s];
      const auto length = static_cast<double>(step.end_ns - step.begin_ns);
      const Traces* traces = traces_of(s, has_trouble(incident));
      const std::vector<double> others = like_.beside(idx, sort_of(step));
      const bool is_compared = others.size() >= LikeSteps::kFewest;
      if (is_compared) noise.add(sort_of(step), others);
      if (traces == nullptr) {
        meanwhile[sort_of(step)].push_back(length);
        continue;
      }
      count(*traces, has_trouble(incident), cost);
      if (!is_compared) continue;
      ++cost.struck_compared;
      cost.struck_ns += length - mean(others);
      struck_noise.add(sort_of(step), others);
      add_parts(*traces, has_trouble(incident), cost);
    }
    cost.noise_ns = noise.get();
    cost.struck_noise_ns = struck_noise.get();
    SlowdownSum sum;
    for (const auto& [sort, lengths] : meanwhile) sum.add(lengths, like_.beside(idx, sort));
    cost.meanwhile = sum.get();
    if (!incident.is_open) cost.after = find_after(idx);
    return cost;
  }

 private:
  /// Of a struck step. Rows that the coordinator computes because nobody else ever did strike none.
  const Traces* traces_of(std::size_t step, bool in_trouble) const {
    const auto found = traces_.find(step);
    if (found == traces_.end()) return nullptr;
    return found->second.has_placement || (in_trouble && found->second.has_trouble) ? &found->second : nullptr;
  }

  static void count(const Traces& traces, bool in_trouble, IncidentCost& cost) {
    ++cost.struck;
    if (!in_trouble) return;
    cost.rows_by_workers += traces.rows_by_workers;
    cost.rows_by_coordinator += traces.rows_by_coordinator;
    cost.experts_read += traces.experts_read;
  }

  static void add_parts(const Traces& traces, bool in_trouble, IncidentCost& cost) {
    for (std::size_t p = 0; p < kNumCostParts; ++p) {
      if (in_trouble || static_cast<CostPart>(p) == CostPart::kPlacement)
        cost.parts_ns[p] += std::max<int64_t>(traces.times[p], 0);
    }
  }

  Slowdown find_after(std::size_t idx) const {
    SlowdownSum sum;
    for (const StepSort& sort : like_.sorts_after(idx)) sum.add(like_.after(idx, sort), like_.before(idx, sort));
    return sum.get();
  }

  const Timeline& timeline_;
  const std::map<std::size_t, Traces>& traces_;
  const LikeSteps& like_;
};

}  // namespace

double IncidentCost::rest_ns() const {
  return struck_ns - static_cast<double>(std::accumulate(parts_ns.begin(), parts_ns.end(), int64_t{0}));
}

std::vector<IncidentCost> find_incident_costs(const ReportInput& input, const WorkerHistory& history,
                                              const std::vector<Incident>& incidents) {
  std::vector<IncidentCost> costs;
  if (incidents.empty()) return costs;
  const TraceFinder traces(input.timeline, history);
  const LikeSteps like(input.timeline, incidents, input.capture.info.selection.empty());
  const CostFinder finder(input.timeline, traces.steps(), like);
  for (std::size_t i = 0; i < incidents.size(); ++i) {
    IncidentCost& cost = costs.emplace_back(finder.find(incidents[i], i));
    for (const PlacementChange& change : history.placements) {
      const bool is_in = change.when.begin >= incidents[i].when.begin && change.when.begin <= incidents[i].when.end;
      if (!is_in || change.event != PlacementEvent::kSwitch) continue;
      cost.has_switched = true;
      cost.experts_moved += change.num_experts;
    }
  }
  return costs;
}

}  // namespace ferry
