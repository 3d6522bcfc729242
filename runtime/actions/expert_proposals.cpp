#include <algorithm>
#include <array>
#include <set>

#include "profiler/report/findings/format.h"
#include "runtime/actions/command_change.h"
#include "runtime/actions/proposals.h"
#include "runtime/plan/advice.h"

// Where experts lie, how many copies there are, who holds any, and how their rows travel.

namespace ferry {
namespace {

struct Copies {
  const char* name;
  PlanCopies copies;
};
const std::array<Copies, 4>& offered_copies() {
  using Kind = Redundancy::Kind;
  static const std::array<Copies, 4> offered{{{"12.5%", {"12.5%", Kind::kExtraSlots, 0.125}},
                                              {"25%", {"25%", Kind::kExtraSlots, 0.25}},
                                              {"50%", {"50%", Kind::kExtraSlots, 0.5}},
                                              {"2x", {"2x", Kind::kTwice, 0}}}};
  return offered;
}

Proposal experts_proposal(const CaptureReplay& replay, Action action) {
  action.command = changed_command(replay.input.capture.info, action.option, action.to);
  return {
      .answers = {"hot_expert", "uneven_rows", "uneven_experts"},
      .rank = -1,
      .own = {.severity = Finding::Severity::kNotice,
              .kind = "uneven_experts",
              .text = "The experts' work is unevenly shared out over the workers, step by step: the fullest one is waited for.",
              .table = "balance"},
      .action = std::move(action)};
}

/// Whether a job that is started anew knows what its experts are asked for.
bool knows_loads(const CaptureReplay& replay) {
  return !replay.setting("--expert-load").empty() || replay.setting("--rebalance", "0") != "0";
}

/// The fewest copies that bring nearly all that copies can.
void propose_copies(const CaptureReplay& replay, PlanReplay& model, std::vector<Proposal>& proposals) {
  constexpr double kNearly = 0.9, kDoubt = 0.3;
  const std::string now = replay.setting("--redundancy", "0");
  if (now != "0") return;
  std::array<GroupSaving, 4> savings;
  double most_s = 0;
  for (std::size_t i = 0; i < savings.size(); ++i) {
    PlanCase c = replay.costs->captured;
    c.copies = offered_copies()[i].copies;
    c.knows_loads = knows_loads(replay);
    savings[i] = find_balance_saving(replay, model, c, kDoubt);
    most_s = std::max(most_s, savings[i].saving.all_saved_s);
  }
  for (std::size_t i = 0; i < savings.size(); ++i) {
    if (savings[i].group == nullptr || savings[i].saving.all_saved_s < kNearly * most_s) continue;
    const std::string name = offered_copies()[i].name;
    Proposal p = experts_proposal(replay, {.kind = "redundancy",
                                           .text = "hold copies of experts, so that each step can choose who computes them",
                                           .option = "--redundancy",
                                           .from = now,
                                           .to = name,
                                           .metric = savings[i].group->metric,
                                           .assumes = "workers have memory for " + name + " more experts"});
    const bool is_worth_it = set_saving(p.action, savings[i].group->tokens_per_s(), true, savings[i].saving);
    if (is_worth_it && p.action.saved_share >= kPlanGain) proposals.push_back(std::move(p));  // copies take memory
    return;
  }
}

void propose_spread(const CaptureReplay& replay, PlanReplay& model, std::vector<Proposal>& proposals) {
  constexpr double kDoubt = 0.3;
  const std::string placement = replay.setting("--placement", "auto");
  if (placement == "spread" || replay.setting("--rebalance", "0") != "0") return;
  // Who was given a placement is rid of it at once; consecutive slices get better by what is learnt.
  const bool was_given = placement != "auto" && placement != "contiguous";
  PlanCase c = replay.costs->captured;
  c.is_spread = true;
  c.knows_loads = !was_given || knows_loads(replay);
  const GroupSaving found = find_balance_saving(replay, model, c, kDoubt);
  if (found.group == nullptr) return;
  Proposal p = experts_proposal(replay, {.kind = "placement",
                                         .text = was_given ? "spread the experts over the workers by what they take"
                                                           : "let experts move to where the recorded load puts them",
                                         .option = was_given ? "--placement" : "--rebalance",
                                         .from = was_given ? placement : "0",
                                         .to = was_given ? "spread" : "256",
                                         .metric = found.group->metric,
                                         .assumes = "the load stays as it was; the figure is of steps behind the first moves"});
  if (set_saving(p.action, found.group->tokens_per_s(), true, found.saving)) proposals.push_back(std::move(p));
}

/// A slow worker holds everybody up: the others may be quicker without it.
void propose_leaving_out(const CaptureReplay& replay, PlanReplay& captured, const Finding& finding,
                         std::vector<Proposal>& proposals) {
  constexpr double kDoubt = 0.3;
  const ReplayCosts& costs = *replay.costs;
  const auto at = std::ranges::find(costs.worker_ranks, finding.rank);
  if (at == costs.worker_ranks.end()) return;
  std::vector<PlanHost> hosts = costs.hosts;
  hosts.erase(hosts.begin() + 1 + (at - costs.worker_ranks.begin()));
  PlanReplay changed(replay, hosts);
  PlanCase c = costs.captured;
  c.workers -= 1;
  const GroupSaving found = find_group_saving(replay, captured, changed, c, kDoubt);
  if (found.group == nullptr) return;
  const int32_t world = replay.input.capture.info.world_size;
  Proposal p{
      .answers = {finding.kind},
      .rank = finding.rank,
      .own = {},
      .action = {.kind = "leave_out",
                 .text = format("start the job without rank %d's place, so that the others hold its experts", finding.rank),
                 .option = "-np",
                 .from = std::to_string(world),
                 .to = std::to_string(world - 1),
                 .command = changed_command(replay.input.capture.info, "-np", std::to_string(world - 1)),
                 .metric = found.group->metric,
                 .assumes = "the other workers have memory for its experts and stay as fast as they were"}};
  if (set_saving(p.action, found.group->tokens_per_s(), true, found.saving)) proposals.push_back(std::move(p));
}

}  // namespace

void propose_experts(const CaptureReplay& replay, const std::vector<Finding>& findings, std::vector<Proposal>& proposals) {
  if (!replay.costs || replay.costs->is_together || replay.costs->worker_ranks.size() < 2) return;
  PlanReplay model(replay);
  propose_copies(replay, model, proposals);
  propose_spread(replay, model, proposals);
  std::set<int32_t> asked;  // a rank is left out once, whatever else is said of it
  for (const char* kind : {"slow_rank", "slow_link", "no_core"}) {
    for (const Finding& finding : findings)
      if (finding.kind == kind && asked.insert(finding.rank).second) propose_leaving_out(replay, model, finding, proposals);
  }
}

void propose_exchange(const CaptureReplay& replay, std::vector<Proposal>& proposals) {
  constexpr double kDoubt = 0.4;
  if (!replay.costs || replay.costs->worker_ranks.empty()) return;
  PlanReplay model(replay);
  const auto propose = [&](PlanCase c, Action action) {
    c.given = &replay.costs->placement;
    const GroupSaving found = find_group_saving(replay, model, model, c, kDoubt);
    if (found.group == nullptr) return;
    action.metric = found.group->metric;
    action.command = changed_command(replay.input.capture.info, action.option, action.to);
    Proposal p{.answers = {"slow_link", "exposed_communication"}, .rank = -1, .own = {}, .action = std::move(action)};
    if (set_saving(p.action, found.group->tokens_per_s(), true, found.saving)) proposals.push_back(std::move(p));
  };
  PlanCase c = replay.costs->captured;
  if (!c.adds_on_workers) {
    c.adds_on_workers = true;
    propose(c, {.kind = "combine",
                .text = "let workers add up the rows of their experts, so that fewer come back",
                .option = "--combine",
                .from = "exact",
                .to = "fast",
                .assumes = "sums are rounded elsewhere than in one process"});
  }
  c = replay.costs->captured;
  if (c.micro_batch_rows == 0 && !replay.costs->is_together) {
    c.micro_batch_rows = 256;
    propose(c, {.kind = "micro_batch",
                .text = "compute prompts in halves, so that the coordinator works on one while workers do on the other",
                .option = "--micro-batch",
                .from = "0",
                .to = "256",
                .assumes = "workers have cores of their own"});
  }
}

}  // namespace ferry
