#include "comm/liveness.h"

#include <utility>
#include <vector>

#include "comm/gloo/gloo_mesh.h"
#include "comm/gloo/peer_watch.h"

namespace ferry {
namespace {

std::vector<Rank> watched_peers(const Group& bootstrap) {
  if (bootstrap.rank() != Rank{0}) return {Rank{0}};
  std::vector<Rank> workers;
  for (int r = 1; r < bootstrap.size(); ++r) workers.push_back(Rank{r});
  return workers;
}

}  // namespace

LivenessMonitor::LivenessMonitor(Group& bootstrap, const GlooOptions& options, OnLost on_lost) {
  const std::vector<Rank> peers = watched_peers(bootstrap);
  watch_ =
      std::make_unique<PeerWatch>(connect_mesh(bootstrap, peers, options), peers, options.goodbye_timeout, std::move(on_lost));
  // A goodbye can only be said to a rank that listens.
  bootstrap.barrier(std::chrono::steady_clock::now() + options.connect_timeout);
}

LivenessMonitor::~LivenessMonitor() = default;

void LivenessMonitor::stop() { watch_->stop(PeerWatch::Goodbye::kSay); }

}  // namespace ferry
