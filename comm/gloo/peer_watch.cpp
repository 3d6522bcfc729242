#include "comm/gloo/peer_watch.h"

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "comm/gloo/gloo_mesh.h"
#include "comm/group.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kWatchSlot = Group::kNumInnerTags;  // the first slot that no message uses; a goodbye has no bytes
constexpr milliseconds kWholeLife = std::chrono::hours(24 * 365 * 50);
constexpr milliseconds kGoodbyeLimit{2000};  // threads may wait that long for a core, and a peer takes a late one for lost

}  // namespace

struct PeerWatch::Peer {
  Rank rank;
  std::unique_ptr<gloo::transport::UnboundBuffer> receive;
  std::atomic<bool> is_gone{false};  // it said goodbye or is lost
  std::thread thread;
};

PeerWatch::PeerWatch(std::shared_ptr<gloo::transport::Context> context, const std::vector<Rank>& peers, OnLost on_lost)
    : context_(std::move(context)), on_lost_(std::move(on_lost)) {
  for (const Rank rank : peers) {
    auto peer = std::make_unique<Peer>();
    peer->rank = rank;
    peer->receive = context_->createUnboundBuffer(nullptr, 0);
    peers_.push_back(std::move(peer));
  }
  for (const auto& peer : peers_) peer->thread = std::thread([this, &watched = *peer] { watch(watched); });
}

PeerWatch::~PeerWatch() { stop(Goodbye::kSkip); }

void PeerWatch::watch(Peer& peer) {
  try {
    peer.receive->recv(peer.rank.value, kWatchSlot);
    peer.receive->waitRecv(nullptr, kWholeLife);
    peer.is_gone = true;
  } catch (const std::exception& error) {
    peer.is_gone = true;
    if (!is_stopping_) on_lost_(peer.rank, "its connection broke: " + gloo_error_text(error));
  }
}

void PeerWatch::stop(Goodbye goodbye) {
  if (is_stopping_.exchange(true)) return;
  if (goodbye == Goodbye::kSay) say_goodbye();
  for (const auto& peer : peers_) peer->receive->abortWaitRecv();
  for (const auto& peer : peers_) peer->thread.join();
}

void PeerWatch::say_goodbye() {
  const auto limit = std::chrono::steady_clock::now() + kGoodbyeLimit;
  for (const auto& peer : peers_) {
    if (peer->is_gone) continue;
    try {
      const auto message = context_->createUnboundBuffer(nullptr, 0);
      message->send(peer->rank.value, kWatchSlot);
      const auto left = std::chrono::duration_cast<milliseconds>(limit - std::chrono::steady_clock::now());
      message->waitSend(nullptr, std::max(left, milliseconds(0)));
    } catch (const std::exception&) {
      peer->is_gone = true;  // It left or died first: either way nobody is there to be told.
    }
  }
}

}  // namespace ferry
