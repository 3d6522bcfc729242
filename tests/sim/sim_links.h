#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/faulty/faulty_links.h"
#include "runtime/cluster/rank_links.h"
#include "runtime/elastic/door.h"

namespace ferry::sim {

/// Planted bugs of jobs over links.
enum class LinkBug {
  kNone,
  kMasksTooEarly,  // ranks wait for each other for a tenth of the peer timeout
  kLosesReplies,   // now and then one never comes, though its link goes on
  kStaleReplies,   // now and then one has the rows of the one before
  kWrongHolder,    // after a change of placement rows are computed by an expert that has other rows to compute
};

/// What the network needs to know of the messages between ranks, and how a planted bug changes them.
FaultyLinks::Wire make_link_wire(LinkBug bug);

class SimDoor;

/// The links of a job's processes, and its door while that is open.
class SimSite {
 public:
  SimSite(FaultyNetwork& network, int num_workers, LinkBug bug);

  FaultyLinks& links() { return links_; }
  /// Of a rank that is started with the job.
  std::unique_ptr<RankLinks> make_links(Rank rank, OnLinkEnd on_end);

  /// What a newcomer gets that was let in.
  struct Visit {
    Rank seat;
    std::shared_ptr<FaultyConnection> connection;
    std::vector<Term> instructions;
  };
  /// `rank` of the network knocks; nothing if nobody opens.
  std::optional<Visit> knock(Rank rank);

  bool is_killed(Rank rank) const { return network_.is_killed(rank); }
  /// Who of the network has, or had last, the seat of a rank as the coordinator counts them.
  Rank process_of(Rank seat) const { return processes_.at(seat.value); }

 private:
  friend class SimDoor;
  friend class SimRankLinks;

  FaultyNetwork& network_;
  FaultyLinks links_;
  std::vector<std::shared_ptr<FaultyConnection>> started_;  // [num_workers + 1], the coordinator's null
  std::map<int32_t, Rank> processes_;                       // by seat
  SimDoor* door_ = nullptr;
};

}  // namespace ferry::sim
