#include "runtime/trace/rank_parts.h"

#include "profiler/tick_clock.h"

namespace ferry {

RankCapture absent_rank(const RankCapture& own, int32_t rank, const std::string& boot_id, const std::string& complaint) {
  return {
      .rank = rank, .host = "(" + complaint + ")", .boot_id = boot_id, .ticks = own.ticks, .begin = own.begin, .end = own.end};
}

RankCapture place_rank(const RankCapture& own, int32_t rank, std::span<const std::byte> bytes, const std::string& boot_id,
                       const std::vector<ClockExchange>& exchanges) {
  RankCapture capture = decode_rank_capture(bytes, "rank " + std::to_string(rank));
  if (boot_id == own.boot_id) {
    if (ticks_are_tsc()) capture.ticks = own.ticks;  // one counter for the whole host
    return capture;
  }
  std::vector<ClockExchange> all = find_exchanges(own, capture);
  all.insert(all.end(), exchanges.begin(), exchanges.end());
  if (all.empty()) return absent_rank(own, rank, boot_id, "its clock is not known");
  capture.alignment = fit_clock(all);
  obey_causality(own, capture);
  return capture;
}

HolderFacts holders_of(const ExpertPlacement& placement) {
  HolderFacts facts;
  facts.epoch = placement.epoch();
  for (const Rank rank : placement.ranks()) facts.ranks.push_back(rank.value);
  for (int64_t layer = 0; layer < placement.num_layers(); ++layer)
    facts.holders.emplace_back(placement.holders(layer).begin(), placement.holders(layer).end());
  return facts;
}

std::vector<int32_t> first_ranks_of(const ExpertPlacement& placement) {
  const ExpertMap& experts = placement.layer(0);
  std::vector<int32_t> ranks;
  for (int32_t e = 0; e < experts.num_logical(); ++e) {
    const PhysicalExpertId copy = experts.copies_of({e}).front();
    ranks.push_back(experts.ranks()[static_cast<std::size_t>(experts.rank_idx_of(copy))].value);
  }
  return ranks;
}

std::vector<std::vector<int64_t>> tokens_of(const ExpertLoad& load) {
  std::vector<std::vector<int64_t>> tokens;
  for (int64_t l = 0; l < load.num_layers(); ++l) tokens.emplace_back(load.layer(l).begin(), load.layer(l).end());
  return tokens;
}

std::vector<std::vector<int64_t>> tokens_since(const std::vector<std::vector<int64_t>>& then, const ExpertLoad& load) {
  std::vector<std::vector<int64_t>> tokens = tokens_of(load);
  for (std::size_t l = 0; l < tokens.size(); ++l) {
    for (std::size_t e = 0; e < tokens[l].size(); ++e) tokens[l][e] -= then[l][e];
  }
  return tokens;
}

}  // namespace ferry
