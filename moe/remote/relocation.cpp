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
    part.message = encode_assignment(
        {.epoch = target_.epoch(), .experts = target_.experts_of(static_cast<int32_t>(w)), .canaries = part.canaries});
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
      witnesses_[{layer, expert}] = static_cast<int32_t>(*witness);
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
    throw Error(ErrorCode::kInternal, "it answers with " + std::to_string(preparation.canaries.size()) +
                                          " canaries; allowed: " + std::to_string(num_canaries));
  part.is_ready = true;
  --num_open_;
  auto canary = preparation.canaries.begin();
  for (std::size_t layer = 0; layer < part.canaries.size(); ++layer) {
    for (const LogicalExpertId expert : part.canaries[layer]) {
      compare({static_cast<int64_t>(layer), expert.value}, {.worker = worker, .canary = *canary++});
    }
  }
}

/// Who has had the expert is right, and until it has sung nobody is wrong; where there is none, the first one is taken to be.
void Relocation::compare(const Key& key, const Song& song) {
  std::vector<Song>& songs = songs_[key];
  songs.push_back(song);
  if (refusal_) return;
  const auto witness = witnesses_.find(key);
  const auto is_right = [&](const Song& of) { return witness == witnesses_.end() || of.worker == witness->second; };
  const auto right = std::ranges::find_if(songs, is_right);
  if (right == songs.end()) return;
  const auto wrong = std::ranges::find_if(songs, [&](const Song& of) { return of.canary != right->canary; });
  if (wrong == songs.end()) return;
  const auto rank = [&](const Song& of) {
    return "rank " + std::to_string(target_.ranks()[static_cast<std::size_t>(of.worker)].value);
  };
  refusal_ = Refusal{wrong->worker, "expert " + std::to_string(key.second) + " of layer " + std::to_string(key.first) +
                                        " computes something else on " + rank(*wrong) + " than on " + rank(*right) +
                                        ": their checkpoints or their kernels differ"};
}

}  // namespace ferry
