#include "runtime/cluster/job_links.h"

#include <utility>

namespace ferry {

JobLinks::JobLinks(Group& bootstrap, const JobShape& shape, const MeetingPlace& place, OnLinkEnd on_end, Deadline deadline)
    : hub_(std::make_unique<StreamHub>(std::move(on_end))), links_(static_cast<std::size_t>(shape.num_ranks)) {
  std::vector<Rank> workers;
  for (int32_t w = 1; w <= shape.num_workers(); ++w) workers.push_back(shape.launched(Rank{w}));
  const bool is_coordinator = shape.is_coordinator(bootstrap.rank());
  for (int32_t c = 0; c < shape.num_coordinators; ++c) {
    std::vector<FileDescriptor> sockets = meet(bootstrap, Rank{c}, workers, place, deadline);
    for (std::size_t i = 0; i < sockets.size(); ++i) {
      const Rank peer = is_coordinator ? Rank{static_cast<int32_t>(i) + 1} : Rank{c};
      links_[static_cast<std::size_t>(peer.value)] = hub_->adopt(std::move(sockets[i]), peer);
    }
  }
}

}  // namespace ferry
