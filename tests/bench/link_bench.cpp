#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/gloo/gloo_group.h"
#include "comm/local_group.h"
#include "comm/stream/stream_hub.h"
#include "runtime/base/check.h"

// How long a message takes to a peer and back, and how many bytes a second pass, over links and over a gloo group, in turn. The
// peer is a thread of this process with sockets of its own; what comes back is compared with what was sent before anything is
// timed.

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

constexpr int kPingTag = 1, kPongTag = 2;

Deadline soon() { return Clock::now() + std::chrono::seconds(60); }

/// A send and a receive of one peer, whatever carries them.
struct Road {
  std::function<std::unique_ptr<PendingOp>(std::span<const std::byte>, int)> isend;
  std::function<std::unique_ptr<PendingOp>(std::span<std::byte>, int)> irecv;
  std::function<void(PendingOp&)> wait;
};

Road road_of(Link& link) {
  return {[&link](auto data, int tag) { return link.isend(data, tag); },
          [&link](auto data, int tag) { return link.irecv(data, tag, Fit::kExact); },
          [&link](PendingOp& op) { link.wait(op, soon()); }};
}

Road road_of(Group& group) {
  const Rank peer{1 - group.rank().value};
  return {[&group, peer](auto data, int tag) { return group.isend(data, peer, tag); },
          [&group, peer](auto data, int tag) { return group.irecv(data, peer, tag, Fit::kExact); },
          [&group](PendingOp& op) { group.wait(op, soon()); }};
}

void exchange(const Road& road, const Bytes& out, int out_tag, Bytes& in, int in_tag) {
  const auto receive = road.irecv(in, in_tag);
  const auto send = road.isend(out, out_tag);
  road.wait(*receive);
  road.wait(*send);
}

/// Sends back whatever comes, `num_rounds` times.
void echo(const Road& road, std::size_t bytes, int num_rounds) {
  Bytes data(bytes);
  for (int i = 0; i < num_rounds; ++i) {
    road.wait(*road.irecv(data, kPingTag));
    road.wait(*road.isend(data, kPongTag));
  }
}

struct Times {
  double median_us = 0, p99_us = 0;
};

/// Round trips of messages that differ from round to round. Ends the process if one comes back wrong.
Times ping(const Road& road, std::size_t bytes, int num_rounds) {
  Bytes out(bytes), in(bytes);
  std::vector<double> times;
  for (int i = 0; i < num_rounds; ++i) {
    if (bytes >= sizeof(i)) std::memcpy(out.data(), &i, sizeof(i));
    const auto start = Clock::now();
    exchange(road, out, kPingTag, in, kPongTag);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    FERRY_CHECK(in == out) << " round " << i << " of " << bytes << " bytes came back wrong";
  }
  std::ranges::sort(times);
  return {times[times.size() / 2], times[times.size() * 99 / 100]};
}

Times run(const Road& near, const Road& far, std::size_t bytes, int num_rounds) {
  std::thread peer([&] { echo(far, bytes, num_rounds); });
  const Times times = ping(near, bytes, num_rounds);
  peer.join();
  return times;
}

std::pair<FileDescriptor, FileDescriptor> tcp_sockets() {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(place);
  auto* address = reinterpret_cast<sockaddr*>(&place);
  FERRY_CHECK_EQ(bind(listener.get(), address, size), 0);
  FERRY_CHECK_EQ(listen(listener.get(), 1), 0);
  FERRY_CHECK_EQ(getsockname(listener.get(), address, &size), 0);
  FileDescriptor near(socket(AF_INET, SOCK_STREAM, 0));
  FERRY_CHECK_EQ(connect(near.get(), address, size), 0);
  FileDescriptor far(accept(listener.get(), nullptr, nullptr));
  return {std::move(near), std::move(far)};
}

std::pair<FileDescriptor, FileDescriptor> host_sockets() {
  int ends[2];
  FERRY_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

/// Two links, each of a hub of its own, as two processes have them.
struct Links {
  explicit Links(std::pair<FileDescriptor, FileDescriptor> sockets)
      : near(near_hub.adopt(std::move(sockets.first), Rank{1})), far(far_hub.adopt(std::move(sockets.second), Rank{0})) {}

  StreamHub near_hub, far_hub;
  std::unique_ptr<Link> near, far;
};

std::vector<std::unique_ptr<Group>> gloo_groups() {
  const auto local = make_local_groups(2);
  std::vector<std::unique_ptr<Group>> groups(2);
  std::thread other([&] { groups[1] = make_gloo_group(*local[1], {}); });
  groups[0] = make_gloo_group(*local[0], {});
  other.join();
  return groups;
}

void compare(std::size_t bytes, int num_rounds, int num_repeats) {
  Links tcp(tcp_sockets()), host(host_sockets());
  const auto gloo = gloo_groups();
  for (int i = 0; i < num_repeats; ++i) {
    const Times over_tcp = run(road_of(*tcp.near), road_of(*tcp.far), bytes, num_rounds);
    const Times over_host = run(road_of(*host.near), road_of(*host.far), bytes, num_rounds);
    const Times over_gloo = run(road_of(*gloo[0]), road_of(*gloo[1]), bytes, num_rounds);
    const auto print = [&](const char* name, const Times& times) {
      std::printf("%9zu bytes  %-10s round trip us median %9.1f  p99 %9.1f  %7.2f GB/s each way\n", bytes, name,
                  times.median_us, times.p99_us, 2 * static_cast<double>(bytes) / times.median_us / 1e3);
    };
    print("link tcp", over_tcp);
    print("link host", over_host);
    print("gloo", over_gloo);
    std::fflush(stdout);
  }
}

int run_link_bench(int argc, char** argv) {
  CLI::App app("Round trips over links and over gloo, verified, in turn.");
  bool is_quick = false;
  int num_repeats = 3;
  app.add_flag("--quick", is_quick, "few rounds: whether it works");
  app.add_option("--repeats", num_repeats, "of each size")->check(CLI::Range(1, 100))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  for (const std::size_t bytes : {8UL, 4096UL, 65536UL, 262144UL, 4194304UL}) {
    const int num_rounds = is_quick ? 5 : bytes > 1000000 ? 60 : 2000;
    compare(bytes, num_rounds, is_quick ? 1 : num_repeats);
  }
  return 0;
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) { return ferry::run_link_bench(argc, argv); }
