#pragma once

#include <memory>
#include <string>

#include "comm/link.h"

namespace ferry {

class Door;
struct DoorRules;
struct ElasticOptions;

/// The links of one rank, and what they are waited for with: each fails by itself.
class RankLinks {
 public:
  virtual ~RankLinks() = default;

  virtual LinkHub& hub() = 0;
  /// Of a coordinator with any worker that was started with it, of a worker with a coordinator.
  virtual Link& link(Rank peer) = 0;
  /// Returns where the other end of that link is (peer_address), empty where that is not known.
  virtual std::string address(Rank /*peer*/) const { return {}; }
  /// Where others come while the job runs. `this` outlives it. Throws Error for options that cannot be followed.
  virtual std::unique_ptr<Door> open_door(const ElasticOptions& options, DoorRules rules) = 0;
};

}  // namespace ferry
