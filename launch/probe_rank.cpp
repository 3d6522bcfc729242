#include "launch/probe_rank.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "runtime/base/error.h"

namespace ferry {
namespace {

[[noreturn]] void have_none(const std::string& what) { throw Error(ErrorCode::kUnavailable, "plan: " + what); }

/// No other rank's socket may stay open here: its end would not be noticed.
void close_all_but(int kept) {
  constexpr int kFirst = 3;  // behind standard input, output and error
  if (kept > kFirst) close_range(kFirst, static_cast<unsigned>(kept) - 1, 0);
  close_range(static_cast<unsigned>(kept) + 1, ~0U, 0);
}

std::pair<FileDescriptor, FileDescriptor> loopback_sockets() {
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(place);
  auto* const address = reinterpret_cast<sockaddr*>(&place);
  if (listener.get() < 0 || bind(listener.get(), address, size) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), address, &size) != 0)
    have_none("no port of the loopback device can be had");
  FileDescriptor near(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (near.get() < 0 || connect(near.get(), address, size) != 0) have_none("the loopback device connects to nothing");
  FileDescriptor far(accept(listener.get(), nullptr, nullptr));
  if (far.get() < 0) have_none("the loopback device accepts nothing");
  return {std::move(near), std::move(far)};
}

}  // namespace

std::pair<FileDescriptor, FileDescriptor> connected_probe_sockets(ProbeSockets kind) {
  if (kind == ProbeSockets::kTcp) return loopback_sockets();
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) have_none("no pair of sockets can be made");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

ProbeRank::ProbeRank(FileDescriptor socket, const Work& work) {
  void* const page = mmap(nullptr, sizeof(*counter_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) have_none("no memory that processes share can be had");
  counter_ = std::construct_at(static_cast<std::atomic<int64_t>*>(page), 0);
  process_ = fork();
  if (process_ < 0) {
    munmap(page, sizeof(*counter_));
    have_none("no process for a rank can be had");
  }
  if (process_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close_all_but(socket.get());
  try {
    work(std::move(socket), *counter_);
  } catch (...) {
    _exit(1);
  }
  _exit(0);
}

ProbeRank::~ProbeRank() {
  using std::chrono::milliseconds;
  constexpr int kTries = 500;
  constexpr milliseconds kPause{10};
  bool has_ended = false;
  for (int i = 0; i < kTries && !has_ended; ++i) {
    has_ended = waitpid(process_, nullptr, WNOHANG) != 0;
    if (!has_ended) std::this_thread::sleep_for(kPause);
  }
  if (!has_ended) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  munmap(counter_, sizeof(*counter_));
}

}  // namespace ferry
