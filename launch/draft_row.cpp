#include "launch/draft_row.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launch/bench_row.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

/// How many drafts were right at the first place, the second, …, of those that were tried there.
std::vector<double> right_shares(const DraftCount& count) {
  std::vector<double> shares;
  for (std::size_t i = 0; i < count.tried.size() && count.tried[i] > 0; ++i)
    shares.push_back(static_cast<double>(count.right[i]) / static_cast<double>(count.tried[i]));
  return shares;
}

}  // namespace

void print_draft_row(int64_t batch, const DraftGain& g) {
  std::printf(
      "%-8s %6lld %10.1f %10.1f   %5.2f x (%.2f-%.2f), prompts %.2f x; %.2f tokens a step; %.1f experts a layer, %.1f plain; "
      "right",
      "drafts", static_cast<long long>(batch), g.tokens_per_s.median, g.plain_tokens_per_s.median, g.gain.median, g.gain.min,
      g.gain.max, g.prompt_gain, g.tokens_per_step, g.touched_experts, g.plain_touched_experts);
  for (const double share : right_shares(g.drafts)) std::printf(" %.0f", 100 * share);
  std::printf(g.drafts.tried[0] > 0 ? " %%\n" : " none tried\n");
  std::fflush(stdout);
}

ordered_json draft_row_json(int64_t batch, const DraftGain& g) {
  const std::vector<double> shares = right_shares(g.drafts);
  const auto num_places = static_cast<std::ptrdiff_t>(shares.size());
  return {{"sequences", batch},
          {"name", "drafts " + std::to_string(batch)},
          {"tokens_per_s", sample_json(g.tokens_per_s)},
          {"plain_tokens_per_s", sample_json(g.plain_tokens_per_s)},
          {"gain", sample_json(g.gain)},
          {"prompt_gain", g.prompt_gain},
          {"tokens_per_step", g.tokens_per_step},
          {"touched_experts", g.touched_experts},
          {"plain_touched_experts", g.plain_touched_experts},
          {"tried", std::vector<int64_t>(g.drafts.tried.begin(), g.drafts.tried.begin() + num_places)},
          {"right", std::vector<int64_t>(g.drafts.right.begin(), g.drafts.right.begin() + num_places)},
          {"right_share", shares}};
}

}  // namespace ferry
