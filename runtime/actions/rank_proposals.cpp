#include <algorithm>
#include <cmath>
#include <set>

#include "profiler/own_cores.h"
#include "profiler/report/findings/format.h"
#include "profiler/report/timeline/step_slices.h"
#include "runtime/actions/command_change.h"
#include "runtime/actions/proposals.h"
#include "runtime/actions/roofs.h"

// Ranks that share cores, and cores that no thread uses.

namespace ferry {
namespace {

int64_t count_threads(const Capture& capture) {
  int64_t sum = 0;
  for (const RankCapture& rank : capture.ranks) sum += std::max(1, rank.num_threads);
  return sum;
}

double sum_of(const std::vector<double>& by_step, const StepGroup& group) {
  double sum = 0;
  for (const std::size_t i : group.steps) sum += by_step[i];
  return sum;
}

Finding cores_shared(const CaptureReplay& replay) {
  const Capture& capture = replay.input.capture;
  const auto cores = std::ssize(parse_cores(capture.ranks.front().cores));
  std::string text = format("%zu ranks with %lld threads share ", capture.ranks.size(), whole(count_threads(capture)));
  text += cores > 0 ? format("the same %lld cores", whole(cores)) : "the cores of one host";
  text +=
      ": they take turns, and each message waits until its reader has one. On one host further ranks bring memory, not speed.";
  return {.severity = Finding::Severity::kNotice, .kind = "cores_shared", .text = text, .table = "run"};
}

/// Seconds of the captured steps in one process: all operators of all ranks as quick as their like were when least disturbed,
/// in the coordinator's threads, and no messages. No plan is asked, whose drawn routing and whose messages would be off.
std::vector<double> alone_seconds(const CaptureReplay& replay) {
  const std::vector<RankCapture>& ranks = replay.input.capture.ranks;
  const double own_threads = std::max(1, ranks.front().num_threads);
  std::vector<double> seconds;
  for (const ReplayedStep& step : replay.steps) seconds.push_back(step.quiet.sum() - step.quiet.exchange);
  for (const ExpertCall& call : replay.calls) {
    const double threads = std::max(1, ranks.at(static_cast<std::size_t>(call.rank)).num_threads);
    if (call.rank > 0) seconds[call.step] += call.quiet * std::min(1.0, threads / own_threads);
  }
  return seconds;
}

GroupSaving find_alone_saving(const CaptureReplay& replay, double doubt) {
  const std::vector<double> alone = alone_seconds(replay);
  return find_group_saving(replay, doubt, [&](const StepGroup& group) { return sum_of(alone, group); });
}

/// Bytes of all weights that the coordinator reads.
double own_weight_bytes(const CaptureReplay& replay) {
  const CaptureInfo& info = replay.input.capture.info;
  const bool has_workers = replay.costs && !replay.costs->worker_ranks.empty();
  return weight_bytes(info, has_workers ? 0 : static_cast<double>(info.expert_rank.size()));
}

/// Of each step, what more threads save: operators are shared out where that takes less than it saves.
std::vector<double> saved_by_threads(const CaptureReplay& replay, double from, double to) {
  constexpr double kParallel = 0.95;  // of an operator's time on one thread
  constexpr double kOfMemory = 0.7;   // of those that read more weights than caches hold: all cores share memory
  constexpr double kHandOver = 2e-6;  // seconds, for each time that threads double
  const CaptureInfo& info = replay.input.capture.info;
  const bool is_cached = own_weight_bytes(replay) < kCachedBytes;
  const auto share = [](double parallel, double threads) { return 1 - parallel + parallel / threads; };
  const double hand_over = kHandOver * std::log2(to / from);
  std::vector<double> saved(replay.steps.size(), 0);
  for_each_step_slice(replay.input.timeline, [&](std::size_t i, const Slice& slice) {
    if (zone_info(slice.zone).kind != ZoneKind::kCompute) return;
    const OperatorFacts* facts = find_operator(info.model.operators, slice.zone);
    const double parallel = facts != nullptr && multiplies_weights(*facts) && !is_cached ? kOfMemory : kParallel;
    const double seconds = 1e-9 * static_cast<double>(slice.self_ns);
    saved[i] += std::max(0.0, seconds * (1 - share(parallel, to) / share(parallel, from)) - hand_over);
  });
  return saved;
}

}  // namespace

void propose_ranks(const CaptureReplay& replay, std::vector<Proposal>& proposals) {
  constexpr double kDoubt = 0.35;  // how much operators suffer from ranks beside them is guessed from their quickest quarter
  if (!share_cores(replay.input)) return;
  Proposal p{.answers = {"cores_shared"}, .own = cores_shared(replay), .action = {}};
  p.action = {.kind = "ranks",
              .text = "run everything in one process: all ranks of this job share one host's cores anyway",
              .option = "-np",
              .from = std::to_string(replay.input.capture.info.world_size),
              .to = "1",
              .assumes =
                  "one process has memory for what the ranks had together; operators then all take what the quickest "
                  "quarter of them took here"};
  bool is_worth_it = false;
  if (replay.costs && !replay.costs->worker_ranks.empty()) {
    const GroupSaving found = find_alone_saving(replay, kDoubt);
    if (found.group != nullptr) {
      p.action.metric = found.group->metric;
      p.action.command = changed_command(replay.input.capture.info, "-np", "1");
      is_worth_it = set_saving(p.action, found.group->tokens_per_s(), true, found.saving);
    }
  }
  if (!is_worth_it) p.action.kind.clear();  // said all the same
  proposals.push_back(std::move(p));
}

void propose_threads(const CaptureReplay& replay, std::vector<Proposal>& proposals) {
  constexpr double kDoubt = 0.4;
  const Capture& capture = replay.input.capture;
  const RankCapture& own = capture.ranks.front();
  const std::set<int> cores = parse_cores(own.cores);
  const auto num_cores = static_cast<double>(cores.size()), num_threads = static_cast<double>(own.num_threads);
  if (num_threads < 1 || num_cores <= num_threads || !own.device.name.empty()) return;
  for (const RankCapture& other : capture.ranks) {
    if (other.rank == own.rank || other.boot_id != own.boot_id) continue;
    const std::set<int> theirs = parse_cores(other.cores);
    if (theirs.empty() || std::ranges::any_of(theirs, [&](int core) { return cores.contains(core); })) return;
  }
  const std::vector<double> saved_by_step = saved_by_threads(replay, num_threads, num_cores);
  const GroupSaving best =
      find_group_saving(replay, kDoubt, [&](const StepGroup& group) { return group.seconds - sum_of(saved_by_step, group); });
  if (best.group == nullptr) return;
  const std::string to = std::to_string(cores.size());
  Proposal p{
      .answers = {"idle_cores"},
      .own = {.severity = Finding::Severity::kNotice,
              .kind = "idle_cores",
              .text = format("The coordinator computes with %d thread%s and may run on %zu cores: %zu of them ha%s "
                             "nothing to do.",
                             own.num_threads, own.num_threads == 1 ? "" : "s", cores.size(),
                             cores.size() - static_cast<std::size_t>(own.num_threads),
                             cores.size() - static_cast<std::size_t>(own.num_threads) == 1 ? "s" : "ve"),
              .table = "run"},
      .action = {.kind = "threads",
                 .text = "compute with a thread on every core",
                 .option = "--threads",
                 .from = std::to_string(own.num_threads),
                 .to = to,
                 .command = changed_command(capture.info, "--threads", to),
                 .metric = best.group->metric,
                 .assumes = "the cores are nobody else's; handing an operator to all threads takes 2 us for each time that "
                            "they double"}};
  if (set_saving(p.action, best.group->tokens_per_s(), true, best.saving)) proposals.push_back(std::move(p));
}

}  // namespace ferry
