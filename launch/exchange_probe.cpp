#include "launch/exchange_probe.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/stream/stream_hub.h"
#include "runtime/base/error.h"
#include "runtime/base/timeout_factor.h"

namespace ferry {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

constexpr int kOutTag = 1, kBackTag = 2;
constexpr std::array<int64_t, 9> kSizes{int64_t{1} << 10, int64_t{1} << 12, int64_t{1} << 14,
                                        int64_t{1} << 16, int64_t{1} << 18, int64_t{1} << 20,
                                        int64_t{1} << 21, int64_t{1} << 22, int64_t{1} << 23};
constexpr int kPasses = 4;               // over all sizes; the fastest counts, as other programs only slow it down
constexpr double kSecondsOfPass = 0.01;  // of one size
constexpr std::chrono::seconds kPatience{30};

struct Share {
  std::size_t out = 0, back = 0;  // bytes of one worker
};

Share share_of(int64_t num_bytes, int64_t workers) {
  constexpr int64_t kLeast = 16;
  const int64_t out = std::max(kLeast, num_bytes / 8 / workers);
  return {.out = static_cast<std::size_t>(out), .back = static_cast<std::size_t>(std::max(kLeast, num_bytes / workers - out))};
}

/// Other bytes in every message of a size, worker and direction.
void fill(Bytes& bytes, uint32_t seed) {
  uint32_t x = seed * 2654435761U + 1;
  for (std::byte& b : bytes) {
    x = x * 1664525U + 1013904223U;
    b = static_cast<std::byte>(x >> 24);
  }
}

/// What a process does in the place of a worker: to every message it answers with bytes of its own, until its link ends. A
/// message that is not the one that is due ends the link.
class Echo {
 public:
  explicit Echo(uint32_t number) : number_(number) {}

  void run(FileDescriptor socket) const {
    StreamHub hub;
    const std::unique_ptr<Link> link = hub.adopt(std::move(socket), Rank{0});
    try {
      while (true) answer_size(*link);
    } catch (const Error&) {  // the other end is done with it, or says what it missed
    }
  }

 private:
  // A size begins with both shares, as two words; a message of one byte ends it.
  void answer_size(Link& link) const {
    std::array<uint64_t, 2> sizes{};
    receive(link, std::as_writable_bytes(std::span(sizes)));
    Bytes in(sizes[0]), expected(sizes[0]), out(sizes[1]);
    fill(expected, 2 * number_);
    fill(out, 2 * number_ + 1);
    for (bool is_first = true;; is_first = false) {
      const std::size_t size = receive(link, in);
      if (size != in.size()) return;
      if (is_first && in != expected) return link.fail("a message came that was not sent");
      link.wait(*link.isend(out, kBackTag), SteadyClock::now() + scaled_timeout(kPatience));
    }
  }

  static std::size_t receive(Link& link, std::span<std::byte> bytes) {
    return link.wait(*link.irecv(bytes, kOutTag, Fit::kUpTo), SteadyClock::now() + scaled_timeout(kPatience));
  }

  const uint32_t number_;
};

/// The end of one worker on the thread that asks.
struct Peer {
  std::unique_ptr<Link> link;
  Bytes out{}, back{}, expected{};
};

class Exchanger {
 public:
  Exchanger(ProbeSockets kind, int64_t workers) {
    std::vector<FileDescriptor> near_ends;
    for (int64_t w = 0; w < workers; ++w) {
      auto [near, far] = connected_probe_sockets(kind);
      near_ends.push_back(std::move(near));
      const Echo echo(static_cast<uint32_t>(w));
      ranks_.push_back(std::make_unique<ProbeRank>(
          std::move(far), [&echo](FileDescriptor socket, std::atomic<int64_t>&) { echo.run(std::move(socket)); }));
    }
    hub_.emplace();
    for (FileDescriptor& near : near_ends)
      peers_.push_back({.link = hub_->adopt(std::move(near), Rank{static_cast<int32_t>(std::ssize(peers_)) + 1})});
  }
  ~Exchanger() { peers_.clear(); }  // which ends the processes
  Exchanger(const Exchanger&) = delete;
  Exchanger& operator=(const Exchanger&) = delete;

  /// The mean of some exchanges behind one that is compared byte by byte.
  double time_of(int64_t num_bytes) {
    const Share share = share_of(num_bytes, std::ssize(peers_));
    for (std::size_t w = 0; w < peers_.size(); ++w) begin(peers_[w], share, static_cast<uint32_t>(w));
    exchange();
    for (Peer& peer : peers_) {
      if (peer.back != peer.expected)
        throw Error(ErrorCode::kInternal, "plan: an exchange of " + std::to_string(num_bytes) + " bytes came back wrong");
    }
    constexpr int kLeast = 3;
    int num_rounds = 0;
    const auto start = SteadyClock::now();
    double elapsed = 0;
    while (num_rounds < kLeast || elapsed < kSecondsOfPass) {
      exchange();
      ++num_rounds;
      elapsed = std::chrono::duration<double>(SteadyClock::now() - start).count();
    }
    for (Peer& peer : peers_) send(*peer.link, std::as_bytes(std::span("", 1)));
    return elapsed / num_rounds;
  }

 private:
  static void send(Link& link, std::span<const std::byte> bytes) {
    link.wait(*link.isend(bytes, kOutTag), SteadyClock::now() + scaled_timeout(kPatience));
  }

  static void begin(Peer& peer, const Share& share, uint32_t number) {
    const std::array<uint64_t, 2> sizes{share.out, share.back};
    send(*peer.link, std::as_bytes(std::span(sizes)));
    peer.out.resize(share.out);
    peer.back.assign(share.back, std::byte{0});
    peer.expected.resize(share.back);
    fill(peer.out, 2 * number);
    fill(peer.expected, 2 * number + 1);
  }

  void exchange() {
    std::vector<std::unique_ptr<PendingOp>> receives, sends;
    for (Peer& peer : peers_) {
      receives.push_back(peer.link->irecv(peer.back, kBackTag, Fit::kExact));
      sends.push_back(peer.link->isend(peer.out, kOutTag));
    }
    std::vector<PendingOp*> awaited;
    std::vector<std::size_t> whose;
    for (std::size_t w = 0; w < peers_.size(); ++w) {
      awaited.push_back(receives[w].get());
      whose.push_back(w);
    }
    while (!awaited.empty()) {
      const std::size_t which = hub_->wait_any(awaited, SteadyClock::now() + scaled_timeout(kPatience));
      const std::size_t w = whose[which];
      peers_[w].link->wait(*receives[w], SteadyClock::now() + scaled_timeout(kPatience));
      peers_[w].link->wait(*sends[w], SteadyClock::now() + scaled_timeout(kPatience));
      awaited.erase(awaited.begin() + static_cast<std::ptrdiff_t>(which));
      whose.erase(whose.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }

  std::vector<std::unique_ptr<ProbeRank>> ranks_;
  std::optional<StreamHub> hub_;  // it has a thread: made behind the processes
  std::vector<Peer> peers_;
};

}  // namespace

Curve measure_exchange(ProbeSockets kind, int64_t workers) {
  Exchanger exchanger(kind, workers);
  Curve curve;
  for (const int64_t size : kSizes) curve.points.push_back({static_cast<double>(size), 0});
  for (int pass = 0; pass < kPasses; ++pass) {
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      const double seconds = exchanger.time_of(kSizes[i]);
      double& best = curve.points[i].seconds;
      best = pass == 0 ? seconds : std::min(best, seconds);
    }
  }
  return curve;
}

}  // namespace ferry
