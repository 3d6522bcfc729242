#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/group.h"
#include "comm/stream/stream_hub.h"
#include "runtime/cluster/job_shape.h"
#include "runtime/cluster/meeting.h"
#include "runtime/cluster/rank_links.h"

namespace ferry {

/// The links that carry the rows of a job that a launcher started: each coordinator has one with every worker.
class JobLinks final : public RankLinks {
 public:
  /// Collective over `bootstrap`, which has the shape's ranks. `on_end` is told of a worker by its number in the job, of a
  /// coordinator by the launcher's. Throws as meet() does.
  JobLinks(Group& bootstrap, const JobShape& shape, const MeetingPlace& place, OnLinkEnd on_end, Deadline deadline);

  LinkHub& hub() override { return *hub_; }
  /// Of a coordinator with worker `peer`, by its number in the job; of a worker with coordinator `peer`.
  Link& link(Rank peer) override { return *links_.at(static_cast<std::size_t>(peer.value)); }
  std::string address(Rank peer) const override { return addresses_.at(static_cast<std::size_t>(peer.value)); }
  std::unique_ptr<Door> open_door(const ElasticOptions& options, DoorRules rules) override;

 private:
  std::unique_ptr<StreamHub> hub_;
  std::vector<std::unique_ptr<Link>> links_;  // by peer, null where there is none
  std::vector<std::string> addresses_;        // by peer
};

/// Those of a coordinator that was started alone: none but with workers that come.
class LoneLinks final : public RankLinks {
 public:
  explicit LoneLinks(OnLinkEnd on_end) : hub_(std::move(on_end)) {}

  LinkHub& hub() override { return hub_; }
  Link& link(Rank peer) override;
  std::unique_ptr<Door> open_door(const ElasticOptions& options, DoorRules rules) override;

 private:
  StreamHub hub_;
};

}  // namespace ferry
