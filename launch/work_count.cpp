#include "launch/work_count.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace ferry {
namespace {

double d(int64_t value) { return static_cast<double>(value); }

/// Whether b of its spans is a number of experts: a product with the routed experts' weights.
bool is_of_experts(const OperatorFacts& facts) { return std::string_view(zone_info(facts.zone).b_name) == "experts"; }

Work operator+(const Work& x, const Work& y) { return {x.bytes + y.bytes, x.flops + y.flops, x.code_flops + y.code_flops}; }

}  // namespace

/// One step, as its operators' spans would count it.
struct WorkCount::Step {
  double rows = 0;
  double sequences = 0;
  double row_keys = 0;     // of attention: rows times keys that they see
  double cached_keys = 0;  // of them read from the cache
  double experts = 0;      // that were given rows, in all layers together

  SpanCounts counts(const OperatorFacts& facts) const {
    const double own_rows = rows * d(facts.rows_per_token);
    if (facts.zone == Zone::kAttention) return {.rows = own_rows, .b = row_keys, .keys = cached_keys};
    return {.rows = own_rows, .b = is_of_experts(facts) ? experts / d(facts.num_layers) : sequences, .keys = 0};
  }
};

WorkCount::WorkCount(std::vector<OperatorFacts> operators, Experts experts) : operators_(std::move(operators)) {
  // The two forms of the delta rule are one operator, of which a step takes either. The MTP layer runs behind steps.
  std::erase_if(operators_, [&](const OperatorFacts& o) {
    return o.zone == Zone::kChunkDeltaRule || o.zone == Zone::kMtpFc || zone_info(o.zone).part == Part::kCombine ||
           (experts == Experts::kOnWorkers && zone_info(o.zone).part == Part::kExperts);
  });
}

/// `is_head`: of what is behind the layers, whose rows are those with logits; otherwise of all else.
Work WorkCount::count(const Step& step, bool is_head) const {
  Work work;
  for (const OperatorFacts& facts : operators_) {
    if ((zone_info(facts.zone).part == Part::kHead) != is_head) continue;
    SpanCounts counts = step.counts(facts);
    const double layers = d(facts.num_layers);
    const double flop = facts.factors == Factors::kNone ? 0 : layers * facts.flop.of(counts);
    work.flops += facts.factors == Factors::kValues ? flop : 0;
    work.code_flops += facts.factors == Factors::kCodes ? flop : 0;
    counts.rows = 0;
    work.bytes += layers * facts.bytes.of(counts);
  }
  return work;
}

Work WorkCount::decode_step(int64_t batch, double past, double num_experts_read) const {
  const Step step{.rows = d(batch),
                  .sequences = d(batch),
                  .row_keys = d(batch) * past,
                  .cached_keys = d(batch) * past,
                  .experts = num_experts_read};
  return count(step, false) + count({.rows = d(batch)}, true);
}

Work WorkCount::prompt(int64_t past, int64_t length, int64_t chunk, double num_experts_read) const {
  Work work = count({.rows = 1}, true);
  for (int64_t first = 0; first < length; first += chunk) {
    const double tokens = d(std::min(chunk, length - first)), seen = d(past + first);
    work = work + count({.rows = tokens,
                         .sequences = 1,
                         .row_keys = tokens * (seen + (tokens + 1) / 2),
                         .cached_keys = seen,
                         .experts = first == 0 ? num_experts_read : 0},
                        false);
  }
  return work;
}

}  // namespace ferry
