#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "comm/failure_latch.h"
#include "comm/faulty/event_log.h"
#include "comm/faulty/faults.h"
#include "comm/faulty/virtual_time.h"
#include "comm/group.h"

// An in-memory network with the behaviour of the real transports, good and bad. Messages between two ranks with one tag arrive
// in order; a send ends at once, when its message arrives or when its receive is waited for; a broken connection or a dead rank
// is told to those who watch it, a partition or a stopped rank is noticed by deadlines alone.

namespace ferry {

class FaultyHub;
class FaultyLinks;

class FaultyNetwork {
 public:
  /// What the network cannot know of the messages it carries.
  struct Wire {
    /// Leading bytes of a message in which a flipped bit would be noticed; a fault flips no others.
    std::function<std::size_t(std::span<const std::byte> message, int tag)> guarded_bytes;
    /// Whether sizes with this tag are the same in every run of a seed; those of others are not logged.
    std::function<bool(int tag)> has_fixed_size;
  };
  /// Planted bugs, to see that a test notices them.
  enum class Bug {
    kNone,
    kNoDeadlines,      // waits end only with what they wait for
    kSwapsMessages,    // two messages of one tag that are under way at once change places
    kFlipsPayloads,    // flips hit any byte
    kHidesTruncation,  // a truncated message is completed with zeros
  };

  /// All of them outlive the network.
  FaultyNetwork(VirtualTime& time, int num_ranks, const Faults& faults, uint64_t seed, Wire wire, EventLog& log,
                Bug bug = Bug::kNone);
  ~FaultyNetwork();

  /// The rank's handle on a group of the first `size` ranks; once per rank, and none outlives the network.
  std::unique_ptr<Group> join(Rank rank, int size);
  std::unique_ptr<Group> join(Rank rank) { return join(rank, static_cast<int>(ranks_.size())); }

  /// `rank`'s process has ended in an error or been killed: those who watch it are told, and what it sends from now on is lost.
  void lose(Rank rank);
  bool is_lost(Rank rank) const { return ranks_[idx(rank)].is_lost; }
  /// Its group has failed: every wait of it throws.
  bool has_failed(Rank rank) const {
    const FailureLatch* failure = ranks_[idx(rank)].failure;
    return failure != nullptr && failure->is_set();
  }
  /// Was killed by a fault.
  bool is_killed(Rank rank) const { return ranks_[idx(rank)].is_killed; }

  // Faults that do not wait for a message; as if one that is drawn had happened.
  void strike(FaultKind kind, Rank rank, VirtualTime::Duration duration = {}, double factor = 1);
  /// Over links alone: each work of the rank takes so much longer, from now on.
  void delay_work(Rank rank, VirtualTime::Duration delay);
  void cut_between(Rank a, Rank b);
  /// Every message from now on is dropped with this probability.
  void set_drop_rate(double rate) { drop_rate_ = rate; }

  /// Whether `rank` can be reached from another one, and runs.
  bool can_answer(Rank rank, Rank from) const;

  /// How often each kind has happened, by FaultKind.
  const std::array<int64_t, kNumFaultKinds>& num_faults() const { return num_faults_; }
  /// A fault touched it or one of its messages.
  bool was_touched(Rank rank) const { return ranks_[idx(rank)].is_touched; }
  /// The same, or it was lost: only such ranks may be blamed.
  bool was_harmed(Rank rank) const { return was_touched(rank) || is_lost(rank); }
  /// Something has happened, other than delays, before the last message of a group was sent.
  bool was_hit_at_start() const { return first_hit_ <= last_group_message_; }
  /// Nothing has happened that patience does not get over.
  bool is_harmless() const { return is_harmless_; }
  int64_t num_messages() const { return num_messages_; }
  void log(const std::string& line, const std::string& detail = {}) { log_.add(time_.elapsed(), line, detail); }

 private:
  friend class FaultyGroup;
  friend class FaultyHub;
  friend class FaultyLink;
  friend class FaultyLinks;

  /// When a send is done, the same for all of a run.
  enum class SendEnd { kAtOnce, kOnArrival, kWhenReceived };
  /// A message that has come. The flag is its send's.
  struct Arrival {
    std::vector<std::byte> bytes;
    std::shared_ptr<bool> send_has_ended;
  };
  /// The n-th receive that is posted takes the n-th message that arrives.
  struct Channel {
    uint64_t num_posted = 0;
    uint64_t num_arrived = 0;
    Deadline last_arrival = Deadline::min();
    std::map<uint64_t, Arrival> messages;  // by number, until they are received
  };
  struct RankState {
    FailureLatch* failure = nullptr;  // of its group, while that lives
    FaultyHub* hub = nullptr;         // of its links, likewise
    bool is_lost = false;
    bool is_killed = false;
    bool is_touched = false;
    Slowness slowness;
  };
  /// A message under way, and what befalls it.
  struct Shipment {
    Rank from, to;
    int tag = 0;
    std::vector<std::byte> bytes;
    VirtualTime::Duration delay{0};
    int copies = 1;
    std::shared_ptr<bool> send_has_ended;
  };

  static std::size_t idx(Rank rank) { return static_cast<std::size_t>(rank.value); }
  Channel& channel(Rank from, Rank to, int tag) { return channels_[{from.value, to.value, tag}]; }
  std::size_t link(Rank a, Rank b) const { return idx(a) * ranks_.size() + idx(b); }

  /// Sends; the flag becomes true when the sender may forget the message.
  std::shared_ptr<bool> send(Rank from, Rank to, int tag, std::span<const std::byte> data);
  void dispatch(Shipment shipment);
  void arrive(const Shipment& shipment);
  /// Logs a message that is sent now. Returns the faults that happen with it.
  std::vector<Fault> count_message(Rank from, Rank to, int tag, std::size_t num_bytes);
  VirtualTime::Duration draw_delay() {
    return VirtualTime::Duration(random_.between(faults_.min_delay.count(), faults_.max_delay.count()));
  }
  void befall(const Fault& fault, Shipment& shipment);
  void note_fault(const Fault& fault, Rank from, Rank to);
  /// What happens to ranks and routes, not to the message.
  void befall_ranks(const Fault& fault, Rank from, Rank to);
  void flip(const Fault& fault, Shipment& shipment);
  void truncate(const Fault& fault, Shipment& shipment);
  void cut(Rank a, Rank b);
  void partition(const Fault& fault);
  void stop(const Fault& fault, Rank rank);
  void kill(Rank rank);
  void slow(Rank rank, double factor);
  void enter(Rank rank, FaultyHub* hub) { ranks_[idx(rank)].hub = hub; }
  const Slowness& slowness(Rank rank) const { return ranks_[idx(rank)].slowness; }
  Deadline dead_until(Rank from, Rank to) const { return dead_until_[link(from, to)]; }
  void tell_loss(Rank watcher, Rank lost, const std::string& reason, VirtualTime::Duration after);
  void touch(Rank rank) { ranks_[idx(rank)].is_touched = true; }

  VirtualTime& time_;
  const Faults& faults_;
  SeededRandom random_;
  const Wire wire_;
  EventLog& log_;
  const Bug bug_;
  const SendEnd send_end_;
  std::vector<RankState> ranks_;
  std::map<std::tuple<int, int, int>, Channel> channels_;  // by (from, to, tag)
  std::vector<Deadline> dead_until_;                       // [from, to]: nothing arrives before
  std::vector<bool> holds_back_;  // [from, to]: what was sent meanwhile arrives then; otherwise it is lost
  std::array<int64_t, kNumFaultKinds> num_faults_{};
  int64_t num_messages_ = 0;
  int64_t first_hit_ = INT64_MAX;
  int64_t last_group_message_ = 0;
  double drop_rate_ = 0;
  bool is_harmless_ = true;
  FaultyLinks* links_ = nullptr;  // while there are any
};

}  // namespace ferry
