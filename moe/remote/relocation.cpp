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

Relocation::Relocation(const ExpertPlacement& current, ExpertPlacement target, std::vector<Member> members,
                       std::optional<uint64_t> own_voice)
    : target_(std::move(target)), members_(std::move(members)), own_voice_(own_voice), parts_(members_.size()) {
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

/// Those who read an expert sing, and one who has had it; if nobody has, this rank, if it sings.
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
      if (!is_read) continue;
      if (witness) {
        parts_[*witness].canaries[at].push_back({expert});
        witnesses_[{layer, expert}] = static_cast<int32_t>(*witness);
      } else if (own_voice_) {
        unwitnessed_.emplace_back(layer, expert);
      }
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
      compare({static_cast<int64_t>(layer), expert.value}, {.worker = worker, .voice = preparation.voice, .canary = *canary++});
    }
  }
}

/// Who has had the expert is right, and until it has sung nobody is wrong. Where there is none, this rank is waited for; if it
/// is no witness, the first one is taken to be right.
void Relocation::compare(const ExpertKey& key, const Song& song) {
  songs_[key].push_back(song);
  const auto witness = witnesses_.find(key);
  if (witness == witnesses_.end() && own_voice_) return;
  agree(key, witness == witnesses_.end() ? std::nullopt : std::optional(witness->second));
}

/// Of each voice, with the witness, or else with whoever has sung first.
void Relocation::agree(const ExpertKey& key, std::optional<int32_t> witness) {
  const std::vector<Song>& songs = songs_[key];
  for (const Song& song : songs) {
    const auto right = std::ranges::find_if(
        songs, [&](const Song& of) { return of.voice == song.voice && (!witness || of.worker == *witness); });
    if (right == songs.end() || right->canary == song.canary) continue;
    blame(key, song.worker, "rank " + std::to_string(target_.ranks()[static_cast<std::size_t>(right->worker)].value));
  }
}

void Relocation::judge() {
  is_judged_ = true;
  for (const ExpertKey& key : unwitnessed_) {
    const auto heard = heard_.find(key);
    for (const Song& song : songs_[key]) {
      if (heard != heard_.end() && song.voice == own_voice_ && song.canary != heard->second)
        blame(key, song.worker, "the coordinator");
    }
    agree(key, std::nullopt);
  }
}

int64_t Relocation::num_unwitnessed() const {
  const auto is_believed = [](const std::vector<Song>& songs, uint64_t voice) {
    return std::ranges::all_of(songs, [&](const Song& song) { return song.voice == voice; });
  };
  int64_t count = std::ranges::count_if(unwitnessed_, [&](const ExpertKey& key) {
    const auto songs = songs_.find(key);
    return songs != songs_.end() && !(heard_.contains(key) && is_believed(songs->second, *own_voice_));
  });
  for (const auto& [key, witness] : witnesses_) {
    const auto songs = songs_.find(key);
    if (songs == songs_.end()) continue;
    const auto right = std::ranges::find(songs->second, witness, &Song::worker);
    if (right != songs->second.end() && !is_believed(songs->second, right->voice)) ++count;
  }
  return count;
}

void Relocation::blame(const ExpertKey& key, int32_t worker, const std::string& other) {
  if (refusal_) return;
  const std::string rank = "rank " + std::to_string(target_.ranks()[static_cast<std::size_t>(worker)].value);
  refusal_ = Refusal{worker, "expert " + std::to_string(key.second) + " of layer " + std::to_string(key.first) +
                                 " computes something else on " + rank + " than on " + other +
                                 ": their checkpoints or their kernels differ"};
}

}  // namespace ferry
