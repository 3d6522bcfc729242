#include "moe/remote/relocation.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace ferry {
namespace {

bool holds(const ExpertPlacement& placement, int64_t layer, std::size_t worker, int64_t expert) {
  if (worker >= placement.ranks().size()) return false;
  return (placement.holders(layer)[static_cast<std::size_t>(expert)] >> worker & 1) != 0;
}

}  // namespace

Relocation::Relocation(const ExpertPlacement& current, ExpertPlacement target, std::vector<Member> members)
    : target_(std::move(target)), members_(std::move(members)), parts_(members_.size()) {
  FERRY_CHECK_EQ(members_.size(), target_.ranks().size());
  plan_canaries(current);
  for (std::size_t w = 0; w < parts_.size(); ++w) {
    if (members_[w].link == nullptr) continue;
    Part& part = parts_[w];
    ++num_open_;
    part.message = encode_assignment({.epoch = target_.epoch(),
                                      .experts = target_.experts_of(static_cast<int32_t>(w)),
                                      .canaries = part.canaries});
    try {
      part.send = members_[w].link->isend(part.message, kRequestTag);
    } catch (const Error&) {  // it is lost, and its link says so
    }
  }
}

/// Those who read an expert sing, and one who has had it.
void Relocation::plan_canaries(const ExpertPlacement& current) {
  for (Part& part : parts_) part.canaries.resize(static_cast<std::size_t>(target_.num_layers()));
  for (int64_t layer = 0; layer < target_.num_layers(); ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    for (int32_t expert = 0; expert < target_.num_experts(); ++expert) {
      std::optional<std::size_t> witness;
      bool is_read = false;
      for (std::size_t w = 0; w < members_.size(); ++w) {
        if (members_[w].link == nullptr) continue;
        const bool had = members_[w].holds_current && holds(current, layer, w, expert);
        if (had && !witness) witness = w;
        if (had || !holds(target_, layer, w, expert)) continue;
        is_read = true;
        ++num_loads_;
        parts_[w].canaries[at].push_back({expert});
      }
      if (!is_read || !witness) continue;
      parts_[*witness].canaries[at].push_back({expert});
      parts_[*witness].witnessed.insert({layer, expert});
    }
  }
}

void Relocation::take(int32_t worker, const Preparation& preparation) {
  if (preparation.epoch != target_.epoch()) return;
  Part& part = parts_.at(static_cast<std::size_t>(worker));
  if (part.is_ready) throw Error(ErrorCode::kInternal, "it answers an assignment twice");
  if (!preparation.complaint.empty()) {
    if (!refusal_) refusal_ = Refusal{worker, preparation.complaint};
    return;
  }
  std::size_t num_canaries = 0;
  for (const auto& layer : part.canaries) num_canaries += layer.size();
  if (preparation.canaries.size() != num_canaries)
    throw Error(ErrorCode::kInternal, "it answers with " + std::to_string(preparation.canaries.size()) + " canaries; allowed: " +
                                          std::to_string(num_canaries));
  part.is_ready = true;
  --num_open_;
  auto canary = preparation.canaries.begin();
  for (std::size_t layer = 0; layer < part.canaries.size(); ++layer) {
    for (const LogicalExpertId expert : part.canaries[layer]) {
      const Key key{static_cast<int64_t>(layer), expert.value};
      compare(key, {.worker = worker, .is_witness = part.witnessed.contains(key), .canary = *canary++});
    }
  }
}

/// Where two differ, the one that has had the expert is right.
void Relocation::compare(const Key& key, const Song& song) {
  const auto [found, is_first] = songs_.try_emplace(key, song);
  if (is_first || refusal_) return;
  const Song& other = found->second;
  if (other.canary == song.canary) return;
  const bool other_is_wrong = song.is_witness;
  const auto rank = [&](const Song& of) {
    return "rank " + std::to_string(target_.ranks()[static_cast<std::size_t>(of.worker)].value);
  };
  refusal_ = Refusal{other_is_wrong ? other.worker : song.worker,
                     "expert " + std::to_string(key.second) + " of layer " + std::to_string(key.first) +
                         " computes something else on " + rank(other) + " than on " + rank(song) +
                         ": their checkpoints or their kernels differ"};
}

}  // namespace ferry
