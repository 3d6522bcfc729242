#include "runtime/actions/advise.h"

#include <algorithm>

#include "profiler/capture_merge.h"
#include "profiler/report/findings/format.h"
#include "runtime/actions/proposals.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

Finding* find_answered(const Proposal& proposal, std::vector<Finding>& findings) {
  for (const std::string& kind : proposal.answers) {
    for (Finding& finding : findings)
      if (finding.kind == kind && (proposal.rank < 0 || finding.rank == proposal.rank)) return &finding;
  }
  return nullptr;
}

/// A finding may be there without anything that could be done about it.
void attach(Proposal proposal, std::vector<Finding>& findings) {
  Finding* finding = find_answered(proposal, findings);
  if (finding == nullptr) {
    if (proposal.own.text.empty()) return;
    std::erase_if(findings, [](const Finding& f) { return f.kind == "none"; });
    findings.push_back(std::move(proposal.own));
    finding = &findings.back();
  }
  if (!proposal.action.kind.empty()) finding->actions.push_back(std::move(proposal.action));
}

/// No plan knows what operators cost on a GPU.
bool computes_on_device(const Capture& capture) {
  return std::ranges::any_of(capture.ranks, [](const RankCapture& rank) { return !rank.device.name.empty(); });
}

}  // namespace

std::vector<Finding> find_and_advise(const ReportInput& input) {
  std::vector<Finding> findings = find_problems(input);
  if (input.timeline.steps.empty() || is_merged(input.capture)) return findings;
  std::vector<Proposal> proposals;
  try {
    const CaptureReplay replay(input);
    if (!computes_on_device(input.capture)) {
      propose_ranks(replay, proposals);
      propose_experts(replay, findings, proposals);
      propose_exchange(replay, proposals);
      propose_threads(replay, proposals);
      propose_width(replay, proposals);
      propose_drafts(replay, proposals);
    }
    if (input.capture.info.selection.empty()) propose_schedule(replay, proposals);  // else most requests are not seen whole
  } catch (const Error& error) {  // a capture that no plan could be of: its findings stand
    findings.push_back({.severity = Finding::Severity::kInfo,
                        .kind = "not_replayed",
                        .text = format("What could be gained is not told: %s.", error.what()),
                        .table = "run"});
  }
  for (Proposal& proposal : proposals) attach(std::move(proposal), findings);
  for (Finding& finding : findings)
    std::ranges::stable_sort(finding.actions, [](const Action& x, const Action& y) { return x.saved_share > y.saved_share; });
  sort_findings(findings);
  return findings;
}

}  // namespace ferry
