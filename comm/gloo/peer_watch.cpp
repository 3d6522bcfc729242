#include "comm/gloo/peer_watch.h"

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/gloo/gloo_mesh.h"
#include "comm/group.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kWatchSlot = Group::kNumInnerTags;  // the first slot that no message uses; a goodbye has no bytes
constexpr milliseconds kWholeLife = std::chrono::hours(24 * 365 * 50);

}  // namespace

struct PeerWatch::Peer {
  /// It said goodbye or is lost: it need not be told anything, and gloo might never end a send to it.
  void note_gone() {
    const std::scoped_lock lock(mutex);
    is_gone = true;
    if (goodbye != nullptr) goodbye->abortWaitSend();
  }
  /// True if the peer is still there. Then the send of `message` ends when the peer leaves.
  bool begin_goodbye(gloo::transport::UnboundBuffer& message) {
    const std::scoped_lock lock(mutex);
    goodbye = is_gone ? nullptr : &message;
    return !is_gone;
  }
  void end_goodbye() {
    const std::scoped_lock lock(mutex);
    goodbye = nullptr;
  }
  /// Calls end_goodbye() at its end. The message must outlive it, because watch() uses the message until then.
  struct GoodbyeScope {
    Peer& peer;
    ~GoodbyeScope() { peer.end_goodbye(); }
  };

  Rank rank;
  std::unique_ptr<gloo::transport::UnboundBuffer> receive;
  std::mutex mutex;  // guards the two below
  bool is_gone = false;
  gloo::transport::UnboundBuffer* goodbye = nullptr;  // that is being sent
  std::thread thread;
};

PeerWatch::PeerWatch(std::shared_ptr<gloo::transport::Context> context, const std::vector<Rank>& peers,
                     milliseconds goodbye_timeout, OnLost on_lost)
    : context_(std::move(context)), goodbye_timeout_(goodbye_timeout), on_lost_(std::move(on_lost)) {
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
    peer.note_gone();
  } catch (const std::exception& error) {
    peer.note_gone();
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
  const auto limit = std::chrono::steady_clock::now() + goodbye_timeout_;
  for (const auto& peer : peers_) {
    try {
      const auto message = context_->createUnboundBuffer(nullptr, 0);
      if (!peer->begin_goodbye(*message)) continue;
      const Peer::GoodbyeScope scope{*peer};
      message->send(peer->rank.value, kWatchSlot);
      const auto left = std::chrono::duration_cast<milliseconds>(limit - std::chrono::steady_clock::now());
      message->waitSend(nullptr, std::max(left, milliseconds(0)));
    } catch (const std::exception&) {  // it left or died first: either way nobody is there to be told
    }
  }
}

}  // namespace ferry
