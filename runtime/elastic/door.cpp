#include "runtime/elastic/door.h"

#include <algorithm>
#include <utility>

#include "moe/placement/placement_types.h"
#include "runtime/base/error.h"
#include "runtime/elastic/join_key.h"
#include "runtime/version.h"

namespace ferry {

std::vector<Term> introduction_terms(const std::string& fingerprint) {
  return {{program_identity()}, {"a checkpoint of fingerprint " + fingerprint}};
}

Door::Door(const ElasticOptions& options, std::vector<Term> introduction, const std::vector<Term>& instructions,
           std::vector<bool> taken)
    : introduction_(std::move(introduction)),
      instructions_(encode_report({.complaint = {}, .terms = instructions, .place = {}})),
      taken_(std::move(taken)) {
  try {
    rendezvous_.emplace(
        options.address, read_join_key(options.key_file), [this](const Newcomer& newcomer) { return admit(newcomer); },
        [this](const Rendezvous::Place& place, FileDescriptor socket) {
          const std::scoped_lock lock(mutex_);
          guests_.push_back({place.member, std::move(socket)});
        });
  } catch (const Error& error) {
    throw Error(error.code(), "--elastic: " + std::string(error.what()));
  }
}

/// The first seat that is free; of a refusal, whoever comes gets to read why.
Rendezvous::Place Door::admit(const Newcomer& newcomer) {
  const HandshakeReport theirs = decode_report(newcomer.introduction, Rank{-1});
  if (theirs.terms != introduction_) {
    for (std::size_t i = 0; i < introduction_.size(); ++i) {
      const std::string their_text = i < theirs.terms.size() ? theirs.terms[i].text : "nothing";
      if (their_text != introduction_[i].text)
        throw Error(ErrorCode::kFailedPrecondition,
                    "the worker is " + their_text + ", the coordinator " + introduction_[i].text + "; allowed: the same");
    }
    throw Error(ErrorCode::kFailedPrecondition, "the worker says more of itself than the coordinator knows");
  }
  const std::scoped_lock lock(mutex_);
  const auto most = static_cast<std::size_t>(kMaxWorkers) + 1;
  auto seat = static_cast<std::size_t>(std::ranges::find(taken_, false) - taken_.begin());
  if (seat >= most)
    throw Error(ErrorCode::kFailedPrecondition, "there are " + std::to_string(kMaxWorkers) + " workers, which is the most");
  if (seat == taken_.size()) taken_.push_back(false);
  taken_[seat] = true;
  return {.member = Rank{static_cast<int32_t>(seat)}, .epoch = 0, .instructions = instructions_};
}

std::vector<Door::Guest> Door::take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(guests_, {});
}

void Door::free_seat(Rank rank) {
  const std::scoped_lock lock(mutex_);
  taken_.at(static_cast<std::size_t>(rank.value)) = false;
}

}  // namespace ferry
