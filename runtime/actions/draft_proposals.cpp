#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "profiler/report/findings/format.h"
#include "runtime/actions/command_change.h"
#include "runtime/actions/draft_costs.h"
#include "runtime/actions/proposals.h"
#include "runtime/schedule/speculation.h"

// How many drafts each sequence tries: tokens to expect of a step against what its rows and guesses take.

namespace ferry {
namespace {

constexpr std::size_t kMost = Speculation::kMaxDrafts;

/// [kMost] how likely the first, second, … draft of a step counts; those that were never tried are as likely behind the one
/// before them as that was behind its own.
struct Acceptance {
  std::array<double, kMost> right{};
  std::size_t num_tried = 0;  // places
  double tokens(std::size_t num_drafts) const {
    double sum = 1;
    for (std::size_t i = 0; i < num_drafts; ++i) sum += right[i];
    return sum;
  }
};

Acceptance find_acceptance(const Timeline& timeline) {
  std::array<double, kMost> tried{}, right{};
  for (const Slice& slice : timeline.slices) {
    if (slice.zone != Zone::kRequestVerify) continue;
    for (std::size_t i = 0; i < std::min<std::size_t>(kMost, verify_drafts(slice.b)); ++i) {
      tried[i] += 1;
      right[i] += i < verify_kept(slice.b) ? 1 : 0;
    }
  }
  Acceptance a;
  constexpr double kEnough = 20;
  while (a.num_tried < kMost && tried[a.num_tried] >= kEnough) {
    a.right[a.num_tried] = right[a.num_tried] / tried[a.num_tried];
    ++a.num_tried;
  }
  for (std::size_t i = a.num_tried; i > 0 && i < kMost; ++i) {
    const double before = i >= 2 ? a.right[i - 2] : 1;
    a.right[i] = before > 0 ? a.right[i - 1] * std::min(1.0, a.right[i - 1] / before) : 0;
  }
  return a;
}

/// What a sequence's text gives a step that tries as many drafts as were tried, in a share `tried` of its steps: in the others
/// nothing was found to guess, or the text ended. Where something is found and where not belongs to the text. So more drafts go
/// over the one in fewer steps, and over the other in as many.
struct TextByDrafts {
  const Acceptance& acceptance;
  double tried = 1;
  std::size_t count = 1;

  double tried_share(std::size_t num_drafts) const { return num_drafts == 0 ? 0 : found(num_drafts) / steps(num_drafts); }
  double tokens(std::size_t num_drafts) const {
    return num_drafts == 0 ? 1 : (1 - tried + tried * acceptance.tokens(count)) / steps(num_drafts);
  }

 private:
  /// Steps that try drafts, and all, for each step that was captured.
  double found(std::size_t num_drafts) const { return tried * acceptance.tokens(count) / acceptance.tokens(num_drafts); }
  double steps(std::size_t num_drafts) const { return 1 - tried + found(num_drafts); }
};

/// Of "3" or "ngram:3": what stands in front of the number, and the number.
struct Drafts {
  std::string prefix;
  int64_t count = 0;
};
std::optional<Drafts> parse_drafts(const std::string& text) {
  Drafts d;
  const std::size_t colon = text.find(':');
  if (colon != std::string::npos) d.prefix = text.substr(0, colon + 1);
  const char* begin = text.data() + d.prefix.size();
  const auto [end, code] = std::from_chars(begin, text.data() + text.size(), d.count);
  if (code != std::errc{} || end != text.data() + text.size() || d.count < 1 || d.count > Speculation::kMaxDrafts) return {};
  return d;
}

/// The mean over steps of so many sequences of which each tries so many drafts in a share `tried` of them, by what steps of so
/// many rows take: experts that a few rows more ask for are fewer and fewer.
template <class Seconds>
double mean_over_tries(double sequences, double tried, std::size_t num_drafts, Seconds&& of_rows) {
  constexpr double kMany = 16;  // sequences, from which on all steps have nearly as many rows
  const auto drafts = static_cast<double>(num_drafts);
  const auto of_count = [&](double count) {
    if (count > kMany) return of_rows(count * (1 + tried * drafts));
    double mean = 0, ways = 1;
    for (double trying = 0; trying <= count; ways *= (count - trying) / (trying + 1), ++trying) {
      const double chance = ways * std::pow(tried, trying) * std::pow(1 - tried, count - trying);
      if (chance > 0) mean += chance * of_rows(count + trying * drafts);
    }
    return mean;
  };
  const double fewer = std::max(1.0, std::floor(sequences)), share = std::max(0.0, sequences - fewer);
  return share > 0 ? (1 - share) * of_count(fewer) + share * of_count(fewer + 1) : of_count(fewer);
}

/// Of a step by its rows, which ask for fewer experts than rows drawn one by one. The plan is asked once for each size.
class SecondsOfRows {
 public:
  SecondsOfRows(PlanReplay& model, const ExpertsOfRows& touched, PlanCase c)
      : model_(model), touched_(touched), case_(std::move(c)) {}

  double operator()(double rows) {
    const auto [known, is_new] = known_.try_emplace(std::llround(rows), 0.0);
    if (is_new) {
      const StepTimes times = model_.decode_times(case_, known->first);
      const double share = touched_.share_of_drawn(static_cast<double>(known->first));
      known->second = times.sum() - (1 - share) * (times.experts + times.imbalance);
    }
    return known->second;
  }

 private:
  PlanReplay& model_;
  const ExpertsOfRows& touched_;
  const PlanCase case_;
  std::map<int64_t, double> known_;
};

struct DraftSteps {
  double steps = 0, sequences = 0, rows = 0, seconds = 0, draft_s = 0;
};

}  // namespace

void propose_drafts(const CaptureReplay& replay, std::vector<Proposal>& proposals) {
  constexpr double kDoubt = 0.35;
  const std::optional<Drafts> now = parse_drafts(replay.setting("--speculate"));
  const Acceptance acceptance = find_acceptance(replay.input.timeline);
  if (!now || acceptance.num_tried == 0 || !replay.costs) return;
  const auto group = std::ranges::find_if(replay.groups, [](const StepGroup& g) { return g.is_decode; });
  if (group == replay.groups.end()) return;
  DraftSteps all;
  for (const std::size_t i : group->steps) {
    const ReplayedStep& step = replay.steps[i];
    all.steps += 1, all.sequences += step.sequences, all.rows += step.rows();
    all.seconds += step.parts.sum(), all.draft_s += step.parts.draft;
  }
  const double sequences = all.sequences / all.steps, captured_rows = all.rows / all.sequences;
  const TextByDrafts text{.acceptance = acceptance,
                          .tried = std::min(1.0, (captured_rows - 1) / static_cast<double>(now->count)),
                          .count = static_cast<std::size_t>(now->count)};
  PlanReplay model(replay, with_rows_of(replay, *group, sequences));
  const ExpertsOfRows touched(replay, *group);
  PlanCase c = replay.costs->captured;
  c.given = &replay.costs->placement;
  SecondsOfRows of_rows(model, touched, std::move(c));
  const auto tokens_of = [&](std::size_t num_drafts) { return text.tokens(num_drafts); };
  const auto seconds_of = [&](std::size_t drafts) {
    const auto num_drafts = static_cast<double>(drafts);
    return mean_over_tries(sequences, text.tried_share(drafts), drafts, of_rows) +
           replay.tokens_s(sequences * tokens_of(drafts)) +
           all.draft_s / all.steps * num_drafts / static_cast<double>(now->count);
  };
  const auto count = static_cast<std::size_t>(now->count);
  const double before = seconds_of(count) / tokens_of(count);
  std::size_t best = count;
  double least = before;
  for (std::size_t k = 0; k <= kMost; ++k) {
    const double of_token = seconds_of(k) / tokens_of(k);
    if (of_token < least) least = of_token, best = k;
  }
  if (best == count) return;
  const double useful = group->tokens / all.sequences;  // tokens a sequence and step, as they were
  const std::string to = best == 0 ? "0" : now->prefix + std::to_string(best);
  Proposal p{
      .answers = {"drafts"},
      .rank = -1,
      .own = {.severity = Finding::Severity::kNotice,
              .kind = "drafts",
              .text = format("Each sequence tries %lld drafts a step, of which the first is right in %.0f %% and the last in "
                             "%.0f %% of the cases: %.2f tokens a step.",
                             whole(now->count), 100 * acceptance.right[0],
                             100 * acceptance.right[std::min(count, acceptance.num_tried) - 1], useful),
              .table = "draft_place"},
      .action = {
          .kind = "drafts",
          .text = best == 0 ? std::string("try no drafts") : format("try %zu draft%s a step", best, best == 1 ? "" : "s"),
          .option = "--speculate",
          .from = replay.setting("--speculate"),
          .to = to,
          .command = changed_command(replay.input.capture.info, "--speculate", to),
          .metric = group->metric,
          .assumes = best > acceptance.num_tried
                         ? "drafts further on are right as often behind right ones as the last that were tried"
                         : "each draft takes as long to guess as the others"}};
  const Saving saving{.before_s = group->seconds,
                      .after_s = group->seconds * least / before,
                      .all_saved_s = group->seconds * (1 - least / before),
                      .self_error = seconds_of(count) * all.steps / all.seconds - 1,
                      .noise = group->noise,
                      .doubt = kDoubt};
  if (set_saving(p.action, group->tokens_per_s(), true, saving)) proposals.push_back(std::move(p));
}

}  // namespace ferry
