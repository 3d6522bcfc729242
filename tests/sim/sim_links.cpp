#include "tests/sim/sim_links.h"

#include <algorithm>
#include <cstring>

#include "moe/wire.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/trace/trace_wire.h"

namespace ferry::sim {
namespace {

using std::chrono::microseconds;
using Role = FaultyLinks::Role;

constexpr microseconds kWork{50}, kWorkPerRow{20};  // of a reply
constexpr int64_t kBugPeriod = 24;                  // a planted bug hits one reply of so many

std::optional<WireHeader> header_of(std::span<const std::byte> message, int tag) {
  if ((tag != kRequestTag && tag != kReplyTag && tag != kNoticeTag) || message.size() < sizeof(WireHeader)) return {};
  WireHeader header;
  std::memcpy(&header, message.data(), sizeof header);
  return header;
}

Role role_of(std::span<const std::byte> message, int tag) {
  if (tag == kReplyTag || tag == kTraceReplyTag) return Role::kAnswer;
  const std::optional<WireHeader> header = header_of(message, tag);
  if (!header) return Role::kOther;
  const bool asks = header->kind == WireKind::kRows || header->kind == WireKind::kTrace;
  if (tag == kRequestTag && asks) return Role::kQuestion;
  return header->kind == WireKind::kLeave ? Role::kFarewell : Role::kOther;
}

FaultyLinks::Duration work(std::span<std::byte> message, int tag, const Slowness& slowness) {
  std::optional<WireHeader> header = header_of(message, tag);
  if (!header || tag != kReplyTag) return {};
  const FaultyLinks::Duration time = slowness.of(kWork + header->num_rows * kWorkPerRow);
  header->compute_ns = time.count();
  std::memcpy(message.data(), &*header, sizeof *header);
  return time;
}

/// One reply of so many brings the rows of an earlier one of its size.
class StaleReplies {
 public:
  void spoil(std::span<std::byte> message, int tag, Rank from) {
    if (tag != kReplyTag) return;
    std::vector<std::byte>& last = last_[{from.value, message.size()}];
    const std::vector<std::byte> now(message.begin(), message.end());
    if (++num_replies_ % kBugPeriod == 0 && last.size() == message.size())
      std::copy(last.begin() + sizeof(WireHeader), last.end(), message.begin() + sizeof(WireHeader));
    last = now;
  }

 private:
  std::map<std::pair<int32_t, std::size_t>, std::vector<std::byte>> last_;
  int64_t num_replies_ = 0;
};

/// The counts of two experts change places: then some of their rows are computed by the other one.
void mix_up_holders(std::span<std::byte> message, int tag) {
  const std::optional<WireHeader> header = header_of(message, tag);
  if (!header || tag != kRequestTag || header->kind != WireKind::kRows || header->map_epoch < 2) return;
  const std::span counts(reinterpret_cast<int32_t*>(message.data() + sizeof(WireHeader)),
                         static_cast<std::size_t>(header->num_local_experts));
  for (std::size_t e = 1; e < counts.size(); ++e) {
    if (counts[e] != counts[e - 1]) return std::swap(counts[e], counts[e - 1]);
  }
}

}  // namespace

FaultyLinks::Wire make_link_wire(LinkBug bug) {
  FaultyLinks::Wire wire{.role_of = role_of, .work = work, .spoil = {}, .loses = {}};
  if (bug == LinkBug::kLosesReplies) {
    wire.loses = [num_replies = int64_t{0}](std::span<const std::byte> /*message*/, int tag) mutable {
      return tag == kReplyTag && ++num_replies % kBugPeriod == 0;
    };
  }
  if (bug == LinkBug::kStaleReplies) {
    wire.spoil = [stale = StaleReplies()](std::span<std::byte> message, int tag, Rank from, Rank /*to*/) mutable {
      stale.spoil(message, tag, from);
    };
  }
  if (bug == LinkBug::kWrongHolder)
    wire.spoil = [](std::span<std::byte> message, int tag, Rank /*from*/, Rank /*to*/) { mix_up_holders(message, tag); };
  return wire;
}

/// Where newcomers come, without a socket: the seats, and who has taken one.
class SimDoor final : public Door {
 public:
  SimDoor(SimSite& site, FaultyHub& hub, DoorRules rules)
      : site_(site), hub_(hub), instructions_(std::move(rules.instructions)), seats_(std::move(rules.taken)) {
    site_.door_ = this;
  }
  ~SimDoor() override { site_.door_ = nullptr; }

  const std::string& address() const override { return address_; }
  std::vector<Guest> take() override {
    std::vector<Guest> guests;
    for (const auto& [seat, connection] : std::exchange(guests_, {})) guests.push_back({seat, hub_.adopt(connection)});
    return guests;
  }
  void free_seat(Rank rank) override { seats_.free(rank); }

  SimSite::Visit let_in(Rank process) {
    const Rank seat = seats_.take();
    site_.processes_[seat.value] = process;
    guests_.emplace_back(seat, site_.links_.connect(hub_.rank(), process, seat));
    return {.seat = seat, .connection = guests_.back().second, .instructions = instructions_};
  }

 private:
  SimSite& site_;
  FaultyHub& hub_;
  const std::string address_ = "simulated";
  const std::vector<Term> instructions_;
  DoorSeats seats_;
  std::vector<std::pair<Rank, std::shared_ptr<FaultyConnection>>> guests_;
};

/// A rank's links, as JobLinks has them.
class SimRankLinks final : public RankLinks {
 public:
  SimRankLinks(SimSite& site, Rank rank, OnLinkEnd on_end)
      : site_(site), hub_(site.links_, rank, std::move(on_end)), links_(site.started_.size()) {
    for (std::size_t r = 1; r < links_.size(); ++r) {
      if (rank == Rank{0}) links_[r] = hub_.adopt(site.started_[r]);
    }
    if (rank != Rank{0}) links_[0] = hub_.adopt(site.started_[static_cast<std::size_t>(rank.value)]);
  }

  LinkHub& hub() override { return hub_; }
  Link& link(Rank peer) override { return *links_.at(static_cast<std::size_t>(peer.value)); }
  std::unique_ptr<Door> open_door(const ElasticOptions& /*options*/, DoorRules rules) override {
    return std::make_unique<SimDoor>(site_, hub_, std::move(rules));
  }

 private:
  SimSite& site_;
  FaultyHub hub_;
  std::vector<std::unique_ptr<Link>> links_;
};

SimSite::SimSite(FaultyNetwork& network, int num_workers, LinkBug bug)
    : network_(network), links_(network, make_link_wire(bug)), started_(static_cast<std::size_t>(num_workers) + 1) {
  for (int32_t r = 1; r <= num_workers; ++r) {
    started_[static_cast<std::size_t>(r)] = links_.connect(Rank{0}, Rank{r}, Rank{r});
    processes_[r] = Rank{r};
  }
}

std::unique_ptr<RankLinks> SimSite::make_links(Rank rank, OnLinkEnd on_end) {
  return std::make_unique<SimRankLinks>(*this, rank, std::move(on_end));
}

std::optional<SimSite::Visit> SimSite::knock(Rank rank) {
  if (door_ == nullptr || !network_.can_answer(Rank{0}, rank)) return {};
  return door_->let_in(rank);
}

}  // namespace ferry::sim
