#include <algorithm>
#include <array>
#include <set>

#include "profiler/report/findings/format.h"
#include "profiler/report/timeline/step_slices.h"
#include "runtime/actions/command_change.h"
#include "runtime/actions/proposals.h"
#include "runtime/actions/roofs.h"

// Weights in fewer bits, where reading them is what takes time.

namespace ferry {
namespace {

struct Width {
  const char* name;
  double bytes_of_bf16;  // scales included
  double passed;         // weights a second of few rows, over the multiply-adds of vectors: these take codes apart; 0: all
};
// Of runs with one and with two Zen 4 threads, fitted to the gain that came in three series of them.
constexpr std::array<Width, 2> kWidths{{{"w8a8", 0.52, 0}, {"w4a8", 0.28, 0.23}}};

/// Whether `--quantize` changes what the operator multiplies with.
bool is_quantized(const OperatorFacts& facts) {
  switch (facts.zone) {
    case Zone::kRouter:
    case Zone::kInProjA:
    case Zone::kInProjB:
    case Zone::kSharedGate:
    case Zone::kAttention:
    case Zone::kChunkDeltaRule:
    case Zone::kRecurrentDeltaRule: return false;
    default: return facts.factors == Factors::kValues;
  }
}

/// Of a group's steps: how long ranks computed with such weights, were they read alone, as a share of what that took.
struct Reading {
  double seconds = 0;  // of those operators, as far as steps wait for them
  double read_s = 0;   // that memory's roof would take for their weights
  double share() const { return seconds > 0 ? std::min(1.0, read_s / seconds) : 0; }
};

Reading find_reading(const CaptureReplay& replay, const StepGroup& group) {
  const ReportInput& input = replay.input;
  const CaptureInfo& info = input.capture.info;
  std::set<std::size_t> wanted;
  for (const std::size_t i : group.steps) wanted.insert(replay.steps[i].index);
  Reading reading;
  const auto add = [&](const Slice& slice, double share) {
    const OperatorFacts* facts = find_operator(info.model.operators, slice.zone);
    if (facts == nullptr || !is_quantized(*facts)) return;
    const SpanCounts counts{.rows = 0, .b = static_cast<double>(slice.b), .keys = 0};
    reading.seconds += share * 1e-9 * static_cast<double>(slice.self_ns);
    reading.read_s += share * facts->bytes.of(counts) / info.read_bytes_per_s;
  };
  for_each_step_slice(input.timeline, [&](std::size_t i, const Slice& slice) {
    if (wanted.contains(i)) add(slice, 1);
  });
  const StepIndex index(input.timeline);
  const double workers = std::max(1.0, static_cast<double>(info.world_size - 1));
  for (const Slice& slice : input.timeline.slices) {
    const int32_t rank = input.timeline.lanes[static_cast<std::size_t>(slice.lane)].rank;
    if (rank == 0 || zone_info(slice.zone).part != Part::kExperts) continue;
    const int32_t step = index.find(slice.step);
    if (step >= 0 && wanted.contains(static_cast<std::size_t>(step))) add(slice, 1 / workers);
  }
  return reading;
}

/// What taking apart the codes of all weights that were read takes at least, seconds.
double passing_s(const Width& width, const Reading& reading, const ReportInput& input) {
  constexpr double kBytesOfWeight = 2, kFlopOfMultiplyAdd = 2;
  constexpr double kTilesOverVectors = 16;  // multiply-adds of bf16 in a cycle: 1024 over two times 32
  const CaptureInfo& info = input.capture.info;
  const double of_vectors = info.flops_per_s / (has_tiles(input) ? kTilesOverVectors : 1);
  const double per_s = width.passed * of_vectors / kFlopOfMultiplyAdd;
  return per_s > 0 ? reading.read_s * info.read_bytes_per_s / kBytesOfWeight / per_s : 0;
}

}  // namespace

void propose_width(const CaptureReplay& replay, std::vector<Proposal>& proposals) {
  constexpr double kBound = 0.4;  // of the roof, from which on an operator is taken to wait for memory
  constexpr double kDoubt = 0.35;
  const CaptureInfo& info = replay.input.capture.info;
  if (replay.setting("--quantize", "none") != "none" || info.model.dtype != "bf16" || info.read_bytes_per_s <= 0) return;
  if (weight_bytes(info, static_cast<double>(info.expert_rank.size())) < kCachedBytes) return;
  for (const RankCapture& rank : replay.input.capture.ranks)
    if (!rank.device.name.empty()) return;
  for (const StepGroup& group : replay.groups) {
    if (!group.is_decode) continue;
    const Reading reading = find_reading(replay, group);
    if (reading.share() < kBound) continue;
    for (const Width& width : kWidths) {
      // What these operators take beyond the reading itself waits for it, too.
      const double left = std::max(reading.seconds * width.bytes_of_bf16, passing_s(width, reading, replay.input));
      const double saved = std::max(0.0, reading.seconds - left);
      Proposal p{
          .answers = {"memory_bound"},
          .rank = -1,
          .own = {.severity = Finding::Severity::kInfo,
                  .kind = "memory_bound",
                  .text = format("Decoding reads weights at %.0f %% of what memory gives: fewer bits are what makes it faster.",
                                 100 * reading.share()),
                  .table = "operator"},
          .action = {.kind = "width",
                     .text = format("hold weights as %s, which changes results a little", width.name),
                     .option = "--quantize",
                     .from = "none",
                     .to = width.name,
                     .command = changed_command(info, "--quantize", width.name),
                     .metric = group.metric,
                     .assumes = "operators that wait for weights take as much less as those have fewer bytes; codes of 4 bits "
                                "pass at 0.23 of what vectors multiply"}};
      if (set_saving(p.action, group.tokens_per_s(), true,
                     {.before_s = group.seconds,
                      .after_s = group.seconds - saved,
                      .all_saved_s = saved,
                      .noise = group.noise,
                      .doubt = kDoubt}))
        proposals.push_back(std::move(p));
    }
    return;  // of the group that takes longest
  }
}

}  // namespace ferry
