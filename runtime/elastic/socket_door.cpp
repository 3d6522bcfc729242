#include "runtime/elastic/socket_door.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/elastic/join_key.h"
#include "runtime/net/peer_address.h"

namespace ferry {
namespace {

constexpr std::size_t kMostHostBytes = 255;  // of a name, as DNS allows

/// Returns the key that workers must prove. Without one, any process that reaches the address could join.
std::string key_of(const ElasticOptions& options) {
  const std::string key = join_key_for(options.address, {.key_file = options.key_file, .own_folder = options.own_key_folder});
  if (key.empty() && !options.own_key_folder.empty()) {
    throw_invalid("workers would join on " + options.address +
                  ", which other hosts can reach, without a key; allowed: --join-key FILE (make it with: umask 077; openssl "
                  "rand -hex 32 >FILE), or this host alone: 127.0.0.1:PORT");
  }
  return key;
}

}  // namespace

namespace {

/// Runs `open` and puts the option's name in front of what it throws.
template <class Open>
void named(Open&& open) {
  try {
    open();
  } catch (const Error& error) {
    throw Error(error.code(), "--elastic: " + std::string(error.what()));
  }
}

}  // namespace

void check_socket_door(const ElasticOptions& options) {
  if (options.address.empty()) return;
  named([&] { Rendezvous::check(options.address, key_of(options)); });
}

SocketDoor::SocketDoor(const ElasticOptions& options, DoorRules rules, StreamHub& hub)
    : hub_(hub),
      introduction_(std::move(rules.introduction)),
      instructions_(encode_report({.complaint = {}, .terms = std::move(rules.instructions), .place = {}})),
      seats_(std::move(rules.taken)) {
  named([&] {
    rendezvous_.emplace(
        options.address, key_of(options), [this](const Newcomer& newcomer) { return admit(newcomer); },
        [this](const Rendezvous::Place& place, FileDescriptor socket) {
          const std::scoped_lock lock(mutex_);
          visits_.push_back({place.member, std::move(socket), std::move(hosts_[place.member.value])});
        });
  });
}

/// The first seat that is free; of a refusal, whoever comes gets to read why.
Rendezvous::Place SocketDoor::admit(const Newcomer& newcomer) {
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
  const Rank member = seats_.take();
  hosts_[member.value] = one_line(theirs.place.substr(0, kMostHostBytes));
  return {.member = member, .epoch = 0, .instructions = instructions_};
}

std::vector<Door::Guest> SocketDoor::take() {
  std::vector<Visit> visits;
  {
    const std::scoped_lock lock(mutex_);
    visits = std::exchange(visits_, {});
  }
  std::vector<Guest> guests;
  guests.reserve(visits.size());
  for (Visit& visit : visits) {
    WorkerHome home{.host = std::move(visit.host), .address = peer_address(visit.socket.get())};
    guests.push_back({visit.rank, hub_.adopt(std::move(visit.socket), visit.rank), std::move(home)});
  }
  return guests;
}

void SocketDoor::free_seat(Rank rank) {
  const std::scoped_lock lock(mutex_);
  seats_.free(rank);
}

}  // namespace ferry
