#include "runtime/cluster/job_links.h"

#include "runtime/base/check.h"
#include "runtime/elastic/socket_door.h"
#include "runtime/net/peer_address.h"

namespace ferry {

JobLinks::JobLinks(Group& bootstrap, const JobShape& shape, const MeetingPlace& place, OnLinkEnd on_end, Deadline deadline)
    : hub_(std::make_unique<StreamHub>(std::move(on_end))),
      links_(static_cast<std::size_t>(shape.num_ranks)),
      addresses_(links_.size()) {
  std::vector<Rank> workers;
  for (int32_t w = 1; w <= shape.num_workers(); ++w) workers.push_back(shape.launched(Rank{w}));
  const bool is_coordinator = shape.is_coordinator(bootstrap.rank());
  for (int32_t c = 0; c < shape.num_coordinators; ++c) {
    std::vector<FileDescriptor> sockets = meet(bootstrap, Rank{c}, workers, place, deadline);
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      const Rank peer = is_coordinator ? Rank{static_cast<int32_t>(i) + 1} : Rank{c};
      addresses_[static_cast<std::size_t>(peer.value)] = peer_address(sockets[i].get());
      links_[static_cast<std::size_t>(peer.value)] = hub_->adopt(std::move(sockets[i]), peer);
    }
  }
}

std::unique_ptr<Door> JobLinks::open_door(const ElasticOptions& options, DoorRules rules) {
  return std::make_unique<SocketDoor>(options, std::move(rules), *hub_);
}

Link& LoneLinks::link(Rank peer) { FERRY_CHECK(false) << " rank " << peer.value << " of a job of one"; }

std::unique_ptr<Door> LoneLinks::open_door(const ElasticOptions& options, DoorRules rules) {
  return std::make_unique<SocketDoor>(options, std::move(rules), hub_);
}

}  // namespace ferry
