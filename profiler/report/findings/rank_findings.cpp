#include "profiler/report/findings/rank_findings.h"

#include <algorithm>
#include <cmath>

#include "profiler/report/findings/format.h"
#include "profiler/report/lost_time/expert_load.h"
#include "profiler/report/statistics.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {
namespace {

constexpr double kMinRankShare = 0.02;      // of the time in steps, where the system itself says that the rank did not run
constexpr double kMinComparedShare = 0.04;  // where only the comparison with other workers speaks
constexpr double kProblemShare = 0.05;
constexpr double kOverRunnerUp = 3;  // times the loss of the next rank by the same cause: otherwise they take turns

double to_ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

/// Makes the findings of one capture.
class RankFindings {
 public:
  RankFindings(const ReportInput& input, const LostTime& lost, const std::vector<CountedDoubt>& counted)
      : input_(input),
        lost_(lost),
        counted_(counted),
        steps_ns_(static_cast<double>(std::max<int64_t>(total_step_ns(input.timeline), 1))) {}

  std::vector<Finding> find() {
    for (const RankLoss& loss : lost_.ranks) {
      find_stops(loss);
      find_no_core(loss);
      if (loss.rank == 0) continue;
      find_link(loss);
      find_slow(loss);
      find_rows(loss);
    }
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const Finding& x, const Finding& y) { return x.saved_ms > y.saved_ms; });
    return std::move(findings_);
  }

 private:
  void find_stops(const RankLoss& loss);
  void find_no_core(const RankLoss& loss);
  void find_link(const RankLoss& loss);
  void find_slow(const RankLoss& loss);
  void find_rows(const RankLoss& loss);
  std::vector<HotExpert> find_explaining(const RankLoss& loss) const;
  bool is_habit(const RankLoss& loss, Loss cause) const;
  void add(const RankLoss& loss, const char* kind, int64_t saved_ns, const std::string& what, const char* table = "straggler");

  double share(int64_t ns) const { return static_cast<double>(ns) / steps_ns_; }
  std::string name(const RankLoss& loss) const {
    return format("Rank %d (%s%s)", loss.rank, input_.capture.ranks[static_cast<std::size_t>(loss.rank)].host.c_str(),
                  loss.rank == 0 ? ", the coordinator" : "");
  }

  const ReportInput& input_;
  const LostTime& lost_;
  const std::vector<CountedDoubt>& counted_;
  const double steps_ns_;
  std::vector<Finding> findings_;
};

void RankFindings::add(const RankLoss& loss, const char* kind, int64_t saved_ns, const std::string& what, const char* table) {
  const auto steps = static_cast<double>(std::max<std::size_t>(input_.timeline.steps.size(), 1));
  const std::string text =
      what + format(" Without that the steps would take %.1f ms less, %.1f %% of their time, %.1f us a step.", to_ms(saved_ns),
                    100 * share(saved_ns), to_us(saved_ns) / steps);
  findings_.push_back({.severity = share(saved_ns) >= kProblemShare ? Finding::Severity::kProblem : Finding::Severity::kNotice,
                       .kind = kind,
                       .text = text,
                       .table = table,
                       .rank = loss.rank,
                       .saved_ms = to_ms(saved_ns),
                       .saved_share = share(saved_ns)});
}

void RankFindings::find_stops(const RankLoss& loss) {
  int64_t saved_ns = loss.at(Loss::kStopped);
  std::vector<Interval> stops = loss.stops;
  for (const CountedDoubt& doubt : counted_) {
    if (doubt.rank != loss.rank) continue;
    const auto end = loss.stopped_ns.lower_bound(doubt.last_step);
    for (auto step = loss.stopped_ns.lower_bound(doubt.first_step); step != end; ++step) saved_ns -= step->second;
    std::erase_if(stops, [&](const Interval& stop) { return stop.begin < doubt.when.end && stop.end > doubt.when.begin; });
  }
  if (stops.empty() || saved_ns <= 0 || share(saved_ns) < kMinRankShare) return;
  std::vector<double> lengths;
  for (const Interval& stop : stops) lengths.push_back(static_cast<double>(stop.end - stop.begin));
  add(loss, "stopped", saved_ns,
      format("%s did not run at all: %zu stall%s of %.1f ms (median) while steps ran, though nothing else had its cores: %s.",
             name(loss).c_str(), lengths.size(), lengths.size() == 1 ? "" : "s", median(lengths) / 1e6, kWhyStopped));
}

void RankFindings::find_no_core(const RankLoss& loss) {
  const int64_t saved_ns = loss.at(Loss::kNoCore);
  if (saved_ns <= 0 || share(saved_ns) < kMinRankShare) return;
  add(loss, "no_core", saved_ns,
      format(
          "%s was ready and had no core for %.1f ms (%.0f %% of the time in steps; %lld preemptions): other work runs on its "
          "cores, of another program or of ranks that share them.",
          name(loss).c_str(), to_ms(loss.core_wait_ns), 100 * share(loss.core_wait_ns), whole(loss.preemptions)));
}

/// Whether the rank is late by this cause again and again, and no other worker is nearly as much. A rank that waits for cores
/// may be late by that alone: only what is far beyond those waits is something else, because the transport's threads, which
/// nobody counts, wait, too.
bool RankFindings::is_habit(const RankLoss& loss, Loss cause) const {
  int64_t runner_up_ns = cause == Loss::kMoreRows ? 0 : loss.core_wait_ns;
  for (const RankLoss& other : lost_.ranks) {
    if (other.rank != 0 && other.rank != loss.rank) runner_up_ns = std::max(runner_up_ns, other.at(cause));
  }
  const int64_t usual_ns = loss.usual_ns[static_cast<std::size_t>(cause)];
  return share(usual_ns) >= kMinComparedShare &&
         static_cast<double>(usual_ns) >= kOverRunnerUp * static_cast<double>(runner_up_ns);
}

void RankFindings::find_link(const RankLoss& loss) {
  if (!is_habit(loss, Loss::kLink)) return;
  add(loss, "slow_link", loss.at(Loss::kLink),
      format("%s is last in %.0f %% of the exchanges because its rows and replies are under way for longer than the other "
             "workers', %.1f us an exchange: its link is slow.",
             name(loss).c_str(), 100 * static_cast<double>(loss.last) / static_cast<double>(loss.exchanges),
             to_us(loss.at(Loss::kLink)) / static_cast<double>(loss.last)));
}

void RankFindings::find_slow(const RankLoss& loss) {
  if (!is_habit(loss, Loss::kSlow)) return;
  add(loss, "slow_rank", loss.at(Loss::kSlow),
      format("%s is last in %.0f %% of the exchanges because it takes longer than the other workers for the same rows (it has "
             "%.2f times theirs), %.1f us an exchange: its processor or memory is slower or shared.",
             name(loss).c_str(), 100 * static_cast<double>(loss.last) / static_cast<double>(loss.exchanges),
             loss.other_rows > 0 ? static_cast<double>(loss.rows) / loss.other_rows : 1.0,
             to_us(loss.at(Loss::kSlow)) / static_cast<double>(loss.last)));
}

/// Whether the count cannot be chance and is far above the layer's mean.
bool is_hot(const HotExpert& expert, const ModelFacts& model, std::size_t num_experts) {
  constexpr double kOverMean = 3, kSigmas = 6;
  const auto tokens = static_cast<double>(expert.tokens);
  const double mean_tokens = tokens / expert.over_mean;
  // One expert sees a token once: with few experts the most that is possible is num_experts / top_k times the mean.
  const double possible = model.top_k > 0 ? static_cast<double>(num_experts) / static_cast<double>(model.top_k) : 1e9;
  const double threshold = std::min(kOverMean, 0.75 * possible);
  return threshold > 1.2 && expert.over_mean >= threshold && tokens - mean_tokens >= kSigmas * std::sqrt(mean_tokens);
}

/// The rank's hot experts, in layers where they have most of the rows that the rank has too many.
std::vector<HotExpert> RankFindings::find_explaining(const RankLoss& loss) const {
  constexpr std::size_t kCandidates = 256;
  constexpr double kExplains = 0.5;
  const CaptureInfo& info = input_.capture.info;
  std::vector<HotExpert> hot = find_hot_experts(input_, lost_, kCandidates);
  std::erase_if(hot,
                [&](const HotExpert& e) { return e.rank != loss.rank || !is_hot(e, info.model, info.expert_rank.size()); });
  std::vector<double> layer_share(info.expert_tokens.size());
  for (const HotExpert& e : hot) layer_share[static_cast<std::size_t>(e.layer)] += e.extra_share;
  std::erase_if(hot, [&](const HotExpert& e) { return layer_share[static_cast<std::size_t>(e.layer)] < kExplains; });
  return hot;
}

/// Rows above the others' are hot experts' fault where those explain them, else the load's.
void RankFindings::find_rows(const RankLoss& loss) {
  constexpr std::size_t kNamed = 3;
  if (!is_habit(loss, Loss::kMoreRows)) return;
  std::vector<HotExpert> hot = find_explaining(loss);
  std::vector<bool> is_explained(loss.more_rows_ns.size(), false);
  int64_t explained_ns = 0;
  for (const HotExpert& e : hot) {
    const auto layer = static_cast<std::size_t>(e.layer);
    if (layer >= is_explained.size() || is_explained[layer]) continue;
    is_explained[layer] = true;
    explained_ns += loss.more_rows_ns[layer];
  }
  if (share(explained_ns) < kMinComparedShare) {
    add(loss, "uneven_rows", loss.at(Loss::kMoreRows),
        format(
            "%s is last in %.0f %% of the exchanges because its experts get %.2f times the other workers' rows there: the load "
            "is uneven.",
            name(loss).c_str(), 100 * static_cast<double>(loss.last) / static_cast<double>(loss.exchanges),
            loss.other_rows > 0 ? static_cast<double>(loss.rows) / loss.other_rows : 1.0),
        "balance");
    return;
  }
  std::stable_sort(hot.begin(), hot.end(), [](const HotExpert& x, const HotExpert& y) { return x.saved_us > y.saved_us; });
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, hot.size()); ++i) {
    text += format("%sxpert %d of layer %d (rank %d) takes %.1f %% of the layer's rows, %.1f times the mean",
                   i == 0 ? "E" : ", e", hot[i].expert, hot[i].layer, hot[i].rank, 100 * hot[i].layer_share, hot[i].over_mean);
  }
  if (hot.size() > kNamed) text += format(", and %zu more of this rank are as hot", hot.size() - kNamed);
  add(loss, "hot_expert", explained_ns, text + "; its rank is waited for there because of these rows.", "hot_expert");
}

}  // namespace

std::vector<Finding> find_costly_ranks(const ReportInput& input, const LostTime& lost,
                                       const std::vector<CountedDoubt>& counted) {
  return RankFindings(input, lost, counted).find();
}

}  // namespace ferry
