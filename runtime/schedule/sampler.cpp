#include "runtime/schedule/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/schedule/counter_random.h"

namespace ferry {
namespace {

using Candidate = SamplerCandidate;

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr std::ptrdiff_t kFirstNucleusBlock = 256;  // tokens sorted at first when looking for the end of the nucleus
constexpr std::ptrdiff_t kNucleusGrowth = 4;
constexpr std::size_t kFewCandidates = 1024;
constexpr std::size_t kMaxLanes = 32;  // independent maxima: several vector registers on every instruction set

/// The candidates' order: higher logit first, then lower id. A strict total order, since NaN never becomes a candidate.
bool ranks_before(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

/// Turns a logit into a probability up to the common factor: exp((logit - max) / temperature), 1 at the maximum, also where
/// both are infinite.
struct Softmax {
  float max_logit;
  double temperature;
  double weight(float logit) const {
    if (logit == max_logit) return 1.0;
    return std::exp((static_cast<double>(logit) - static_cast<double>(max_logit)) / temperature);
  }
};

/// The highest logit's id, the lowest one on ties. Two plain passes, so that the compiler can take a vector of logits at a
/// time.
TokenId highest(std::span<const float> logits) {
  std::array<float, kMaxLanes> lanes;
  lanes.fill(kLowest);
  std::size_t i = 0;
  for (; i + kMaxLanes <= logits.size(); i += kMaxLanes) {
    for (std::size_t j = 0; j < kMaxLanes; ++j) lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
  }
  float best = *std::max_element(lanes.begin(), lanes.end());
  for (; i < logits.size(); ++i) best = logits[i] > best ? logits[i] : best;
  if (best == kLowest) return kNoToken;
  return static_cast<TokenId>(std::find(logits.begin(), logits.end(), best) - logits.begin());
}

/// Writes the tokens that do not rank behind `last` to the front of `out` [>= logits.size()], in order of id.
std::span<Candidate> collect(std::span<const float> logits, const Candidate& last, std::span<Candidate> out) {
  std::size_t num_kept = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const Candidate candidate{logits[i], static_cast<TokenId>(i)};
    const bool ties = candidate.logit == last.logit && candidate.id <= last.id;
    const bool keeps = candidate.logit > kLowest && (candidate.logit > last.logit || ties);
    out[num_kept] = candidate;  // overwritten by the next one if not kept: no branch to mispredict
    num_kept += keeps ? 1 : 0;
  }
  return out.first(num_kept);
}

/// Writes the k < logits.size() best tokens to the front of `out`, in no particular order. Keeps up to 2k tokens above the
/// best known bound and halves them when full, which is linear in the vocabulary for any k.
std::span<Candidate> collect_top_k(std::span<const float> logits, std::size_t k, std::span<Candidate> out) {
  const std::size_t limit = std::min(2 * k, logits.size());
  std::size_t num_kept = 0;
  float bound = kLowest;
  const auto keep_best = [&] {
    std::nth_element(&out[0], &out[k - 1], &out[0] + num_kept, ranks_before);
    num_kept = k;
    bound = out[k - 1].logit;  // a later token with this logit has a higher id and ranks behind
  };
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > bound)) continue;
    out[num_kept++] = {logits[i], static_cast<TokenId>(i)};
    if (num_kept == limit) keep_best();
  }
  if (num_kept > k) keep_best();
  return out.first(num_kept);
}

/// The last token of the nucleus: the first one, best first, at which the summed probability reaches top_p. Sorts only as far
/// as it has to look; reorders `kept`, which is not empty.
Candidate nucleus_end(const Softmax& softmax, double top_p, std::span<Candidate> kept) {
  double total = 0.0;
  for (const Candidate& candidate : kept) total += softmax.weight(candidate.logit);
  // All tokens lighter than this weigh at most half of what the nucleus may lack, so it ends before them.
  const double least_weight = 0.5 * (1.0 - top_p) * total / static_cast<double>(kept.size());
  const double least_logit = softmax.max_logit + softmax.temperature * std::log(least_weight);
  const auto end = std::partition(kept.begin(), kept.end(), [&](const Candidate& c) { return c.logit >= least_logit; });

  const double target = top_p * total;
  double mass = 0.0;
  std::ptrdiff_t block = kFirstNucleusBlock;
  for (auto first = kept.begin(); first != end; block *= kNucleusGrowth) {
    const auto last = first + std::min(block, end - first);
    if (last != end) std::nth_element(first, last - 1, end, ranks_before);
    std::sort(first, last, ranks_before);
    for (; first != last; ++first) {
      mass += softmax.weight(first->logit);
      if (mass >= target) return *first;
    }
  }
  return *(end - 1);
}

/// The members of `few` that do not rank behind `last`, in order of id: what collect() would find in the whole row.
std::span<Candidate> trim(std::span<Candidate> few, const Candidate& last) {
  const auto end = std::partition(few.begin(), few.end(), [&](const Candidate& c) { return !ranks_before(last, c); });
  std::sort(few.begin(), end, [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  return few.first(static_cast<std::size_t>(end - few.begin()));
}

/// Inverts the cumulative distribution of `survivors` at `uniform` in [0, 1); kNoToken if rounding leaves nothing.
TokenId draw(const Softmax& softmax, double uniform, std::span<const Candidate> survivors, std::span<double> weights) {
  double total = 0.0;
  for (std::size_t i = 0; i < survivors.size(); ++i) {
    weights[i] = softmax.weight(survivors[i].logit);
    total += weights[i];
  }
  const double target = uniform * total;
  double mass = 0.0;
  for (std::size_t i = 0; i < survivors.size(); ++i) {
    mass += weights[i];
    if (mass > target) return survivors[i].id;
  }
  return kNoToken;
}

constexpr std::size_t kMaxStops = 1024;  // every new character is compared with all of them, on the thread of all requests

std::string too_many(const char* field, std::size_t count) {
  return std::string(field) + " has " + std::to_string(count) + " entries; allowed: at most " + std::to_string(kMaxStops);
}

}  // namespace

void validate_sampling(const SamplingParams& params) {
  if (!(params.temperature >= 0.0F) || std::isinf(params.temperature)) {
    throw_invalid("temperature is " + std::to_string(params.temperature) + "; allowed: a finite number >= 0");
  }
  if (!(params.top_p > 0.0F && params.top_p <= 1.0F)) {
    throw_invalid("top_p is " + std::to_string(params.top_p) + "; allowed: above 0, at most 1");
  }
  if (params.top_k < 0) throw_invalid("top_k is " + std::to_string(params.top_k) + "; allowed: >= 1, or 0 for off");
  if (params.max_tokens < 1) throw_invalid("max_tokens is " + std::to_string(params.max_tokens) + "; allowed: >= 1");
  if (params.stop_token_ids.size() > kMaxStops) throw_invalid(too_many("stop_token_ids", params.stop_token_ids.size()));
  if (params.stop.size() > kMaxStops) throw_invalid(too_many("stop", params.stop.size()));
  for (const TokenId id : params.stop_token_ids) {
    if (id < 0) throw_invalid("stop_token_ids holds " + std::to_string(id) + "; allowed: >= 0");
  }
  for (std::size_t i = 0; i < params.stop.size(); ++i) {
    if (params.stop[i].empty()) throw_invalid("stop[" + std::to_string(i) + "] is empty; allowed: at least one byte");
  }
}

SamplerScratch::SamplerScratch(int64_t vocab_size) {
  FERRY_CHECK_GE(vocab_size, 1);
  candidates.resize(static_cast<std::size_t>(vocab_size));
  weights.resize(static_cast<std::size_t>(vocab_size));
}

TokenId sample(std::span<const float> logits, int32_t vocab_size_effective, const SamplingParams& params, int64_t token_idx,
               SamplerScratch& scratch) {
  FERRY_CHECK(vocab_size_effective >= 1 && vocab_size_effective <= std::ssize(logits))
      << vocab_size_effective << " of " << logits.size() << " ids";
  FERRY_CHECK_LE(static_cast<std::size_t>(vocab_size_effective), scratch.candidates.size());
  FERRY_CHECK_GE(token_idx, 0);
  const std::span<const float> row = logits.first(static_cast<std::size_t>(vocab_size_effective));
  const TokenId best = highest(row);
  if (best == kNoToken || is_greedy(params)) return best;

  const Softmax softmax{row[static_cast<std::size_t>(best)], params.temperature};
  const bool filters_k = params.top_k > 0 && params.top_k < vocab_size_effective;
  const bool filters_p = params.top_p < 1.0F;
  Candidate last{kLowest, std::numeric_limits<TokenId>::max()};
  std::span<Candidate> kept;
  if (filters_k) {
    kept = collect_top_k(row, static_cast<std::size_t>(params.top_k), scratch.candidates);
    last = *std::max_element(kept.begin(), kept.end(), ranks_before);
  } else if (filters_p) {
    kept = collect(row, last, scratch.candidates);
  }
  if (filters_p) last = nucleus_end(softmax, params.top_p, kept);
  const bool is_few = !kept.empty() && kept.size() <= kFewCandidates;  // sorting them beats a pass over the row
  kept = is_few ? trim(kept, last) : collect(row, last, scratch.candidates);
  scratch.num_survivors = std::ssize(kept);
  const double uniform = counter_uniform(params.seed, static_cast<uint64_t>(token_idx));
  const TokenId drawn = draw(softmax, uniform, kept, scratch.weights);
  return drawn == kNoToken ? best : drawn;
}

}  // namespace ferry
