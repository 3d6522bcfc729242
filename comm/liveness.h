#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/gloo/gloo_group.h"
#include "comm/group.h"

namespace ferry {

class PeerWatch;

/// Notices the death of peers for as long as the job lives, whatever carries the data and also while the job is idle: rank 0
/// watches every worker, a worker watches rank 0. Has TCP connections of its own.
///
///   LivenessMonitor liveness(*group, options, [&](Rank lost, const std::string& reason) { group->fail(lost, reason); });
///
/// A killed process is noticed within milliseconds, a host that vanishes after about 5 s (TCP keepalive). A process that is
/// stopped or stuck is alive: only deadlines notice that.
class LivenessMonitor {
 public:
  /// Called at most once per lost rank, from a thread of the monitor. Must not stop or destroy the monitor, nor the group.
  using OnLost = std::function<void(Rank lost, const std::string& reason)>;

  /// Collective over `bootstrap`, which is not used afterwards. Errors as for make_gloo_group.
  LivenessMonitor(Group& bootstrap, const GlooOptions& options, OnLost on_lost);
  /// Ends the watch without a goodbye. So the peers of a rank that goes down in an error, or leaves through std::_Exit,
  /// notice it at once and need not wait for a deadline.
  ~LivenessMonitor();
  LivenessMonitor(const LivenessMonitor&) = delete;
  LivenessMonitor& operator=(const LivenessMonitor&) = delete;

  /// The clean end: tells the peers that this rank leaves, which is not a death, and ends the watch. Waits for no peer, in
  /// whatever order ranks stop and whoever is dead: at most GlooOptions::goodbye_timeout. on_lost is not called after this
  /// returns.
  void stop();

 private:
  std::unique_ptr<PeerWatch> watch_;
};

}  // namespace ferry
