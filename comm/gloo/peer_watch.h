#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/types.h"

namespace gloo::transport {
class Context;
}

namespace ferry {

/// Notices the death of peers: a thread per peer that sleeps in a receive which ends only when the peer says goodbye, when its
/// connection breaks, or at stop(). A peer that is alive but stuck is not noticed; deadlines are for that.
///
/// gloo signals a broken connection to receives that have not begun but not to a message that is under way, which is why a
/// transfer needs this watch beside its own receive.
class PeerWatch {
 public:
  /// Called at most once per peer, from the thread that watches it. Must not stop or destroy the watch.
  using OnLost = std::function<void(Rank, const std::string& reason)>;
  enum class Goodbye { kSay, kSkip };

  /// `goodbye_timeout` is for all goodbyes together; whom none reaches takes this rank for lost.
  PeerWatch(std::shared_ptr<gloo::transport::Context> context, const std::vector<Rank>& peers,
            std::chrono::milliseconds goodbye_timeout, OnLost on_lost);
  /// stop(Goodbye::kSkip).
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  /// Ends all threads; on_lost is not called after this returns. With kSay the peers are told that this is no death, which
  /// takes at most the goodbye timeout. One thread may call it, again without effect.
  void stop(Goodbye goodbye);

 private:
  struct Peer;

  void watch(Peer& peer);
  void say_goodbye();

  const std::shared_ptr<gloo::transport::Context> context_;  // shared with the group that uses the connections
  const std::chrono::milliseconds goodbye_timeout_;
  const OnLost on_lost_;
  std::atomic<bool> is_stopping_{false};
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace ferry
