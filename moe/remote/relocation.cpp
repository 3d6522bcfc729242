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

Relocation::Relocation(const ExpertPlacement& current, ExpertPlacement target, std::vector<Member> members, Witness witness)
    : target_(std::move(target)), members_(std::move(members)), parts_(members_.size()) {
  FERRY_CHECK_EQ(members_.size(), target_.ranks().size());
  const std::set<int32_t> readers = plan_canaries(current);
  if (witness == Witness::kThisRankToo && !readers.empty()) plan_own_songs(current, readers);
  if (witness == Witness::kMembers) unwitnessed_.clear();
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

/// Those who read an expert sing, and one who has had it. Returns who reads what nobody has had.
std::set<int32_t> Relocation::plan_canaries(const ExpertPlacement& current) {
  std::set<int32_t> readers;
  for (Part& part : parts_) part.canaries.resize(static_cast<std::size_t>(target_.num_layers()));
  for (int64_t layer = 0; layer < target_.num_layers(); ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    for (int32_t expert = 0; expert < target_.num_experts(); ++expert) {
      std::optional<std::size_t> witness;
      std::vector<int32_t> reading;
      for (std::size_t w = 0; w < members_.size(); ++w) {
        if (members_[w].link == nullptr) continue;
        const bool had = members_[w].holds_current && holds(current, layer, w, expert);
        if (had && !witness) witness = w;
        if (had || !holds(target_, layer, w, expert)) continue;
        reading.push_back(static_cast<int32_t>(w));
        ++num_loads_;
        parts_[w].canaries[at].push_back({expert});
      }
      if (reading.empty()) continue;
      if (!witness) {
        unwitnessed_.emplace_back(layer, expert);
        readers.insert(reading.begin(), reading.end());
        continue;
      }
      parts_[*witness].canaries[at].push_back({expert});
      witnesses_[{layer, expert}] = static_cast<int32_t>(*witness);
    }
  }
  return readers;
}

/// An expert that the worker has had, or else one that it reads and for which another one's word stands.
std::optional<ExpertKey> Relocation::find_reference(const ExpertPlacement& current, int32_t worker) const {
  const auto w = static_cast<std::size_t>(worker);
  if (members_[w].holds_current) {
    for (int64_t layer = 0; layer < target_.num_layers(); ++layer) {
      for (int32_t expert = 0; expert < target_.num_experts(); ++expert) {
        if (holds(current, layer, w, expert)) return ExpertKey{layer, expert};
      }
    }
  }
  const auto reads = [&](const auto& witness) { return holds(target_, witness.first.first, w, witness.first.second); };
  const auto found = std::ranges::find_if(witnesses_, reads);
  return found == witnesses_.end() ? std::nullopt : std::optional(found->first);
}

void Relocation::plan_own_songs(const ExpertPlacement& current, const std::set<int32_t>& readers) {
  std::set<ExpertKey> references;
  for (const int32_t reader : readers) {
    const std::optional<ExpertKey> reference = find_reference(current, reader);
    if (!reference) continue;
    references.insert(*reference);
    const LogicalExpertId expert{reference->second};
    auto& canaries = parts_[static_cast<std::size_t>(reader)].canaries[static_cast<std::size_t>(reference->first)];
    if (std::ranges::find(canaries, expert) == canaries.end()) canaries.push_back(expert);
  }
  to_sing_.assign(references.begin(), references.end());  // first: without them no other one counts
  to_sing_.insert(to_sing_.end(), unwitnessed_.begin(), unwitnessed_.end());
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

/// Who has had the expert is right, and until it has sung nobody is wrong. Where there is none, this rank is waited for; if it
/// is no witness, the first one is taken to be right.
void Relocation::compare(const ExpertKey& key, const Song& song) {
  songs_[key].push_back(song);
  const auto witness = witnesses_.find(key);
  if (witness == witnesses_.end() && !to_sing_.empty()) return;
  agree(key, witness == witnesses_.end() ? std::nullopt : std::optional(witness->second));
}

void Relocation::agree(const ExpertKey& key, std::optional<int32_t> witness) {
  if (refusal_) return;
  const std::vector<Song>& songs = songs_[key];
  const auto right = std::ranges::find_if(songs, [&](const Song& of) { return !witness || of.worker == *witness; });
  if (right == songs.end()) return;
  const auto wrong = std::ranges::find_if(songs, [&](const Song& of) { return of.canary != right->canary; });
  if (wrong == songs.end()) return;
  blame(key, wrong->worker, "rank " + std::to_string(target_.ranks()[static_cast<std::size_t>(right->worker)].value));
}

/// Those who have sung something as this rank has.
std::set<int32_t> Relocation::alike() const {
  std::set<int32_t> workers;
  for (const auto& [key, canary] : heard_) {
    const auto songs = songs_.find(key);
    if (songs == songs_.end()) continue;
    for (const Song& song : songs->second) {
      if (song.canary == canary) workers.insert(song.worker);
    }
  }
  return workers;
}

void Relocation::judge() {
  is_judged_ = true;
  const std::set<int32_t> workers = alike();
  for (const ExpertKey& key : unwitnessed_) {
    const auto heard = heard_.find(key);
    bool is_witnessed = false;
    std::optional<int32_t> right;
    for (const Song& song : songs_[key]) {
      if (heard == heard_.end() || !workers.contains(song.worker)) continue;
      is_witnessed = true;
      if (song.canary != heard->second) blame(key, song.worker, "the coordinator");
      if (song.canary == heard->second) right = song.worker;
    }
    num_unwitnessed_ += is_witnessed ? 0 : 1;
    agree(key, right);
  }
}

void Relocation::blame(const ExpertKey& key, int32_t worker, const std::string& other) {
  if (refusal_) return;
  const std::string rank = "rank " + std::to_string(target_.ranks()[static_cast<std::size_t>(worker)].value);
  refusal_ = Refusal{worker, "expert " + std::to_string(key.second) + " of layer " + std::to_string(key.first) +
                                 " computes something else on " + rank + " than on " + other +
                                 ": their checkpoints or their kernels differ"};
}

}  // namespace ferry
