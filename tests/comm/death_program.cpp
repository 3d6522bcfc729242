#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <thread>

#include "comm/gloo/gloo_group.h"
#include "comm/liveness.h"
#include "comm/mpi/mpi_group.h"
#include "runtime/base/error.h"

// One rank of the job that tests/comm/death_test.cpp starts:
//   death_program DIR mpi|gloo exchange|idle VICTIM
// Rank 0 exchanges messages with every worker, or everybody only waits, until rank VICTIM kills itself. The survivors must then
// get an error from their wait; each writes what it saw to DIR/rankN and leaves with kSurvivorStatus.

namespace ferry {
namespace {

using std::chrono::steady_clock;

constexpr int kSurvivorStatus = 43;
constexpr std::size_t kMessageBytes = 3000017;

struct Options {
  std::string dir;
  bool is_gloo = false;
  bool is_exchange = false;
  Rank victim;
};

Deadline in_seconds(int seconds) { return steady_clock::now() + std::chrono::seconds(seconds); }
int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now().time_since_epoch()).count();
}

// Rank 0 with every worker, both ways at once. The death comes at any point of it.
void exchange_for_ever(Group& group) {
  const bool is_coordinator = group.rank() == Rank{0};
  const int num_peers = is_coordinator ? group.size() - 1 : 1;
  std::vector<std::vector<std::byte>> inboxes(static_cast<std::size_t>(num_peers), std::vector<std::byte>(kMessageBytes));
  const std::vector<std::byte> message(kMessageBytes, std::byte{7});
  while (true) {
    group.group_start();
    for (int i = 0; i < num_peers; ++i) {
      const Rank peer{is_coordinator ? i + 1 : 0};
      group.send(message, peer, 1);
      group.recv(inboxes[static_cast<std::size_t>(i)], peer, 1);
    }
    group.group_end(in_seconds(60));
  }
}

void wait_for_ever(Group& group) {
  std::vector<std::byte> inbox(33);
  group.wait(*group.irecv(inbox, Rank{group.rank() == Rank{0} ? 1 : 0}, 1, Fit::kUpTo), in_seconds(60));
}

// Waits until every other survivor has reported, so that none takes this one's end for the death that it should see.
void await_other_reports(const Options& options, Rank self, int size) {
  const Deadline deadline = in_seconds(20);
  for (int r = 0; r < size; ++r) {
    if (Rank{r} == self || Rank{r} == options.victim) continue;
    while (!std::filesystem::exists(options.dir + "/rank" + std::to_string(r)) && steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

void write_report(const Options& options, Rank self, const std::string& report) {
  const std::string path = options.dir + "/rank" + std::to_string(self.value);
  std::ofstream(path + ".tmp") << report << "status=" << kSurvivorStatus << "\n";
  std::filesystem::rename(path + ".tmp", path);
}

// Open MPI may never come back from a TCP connection that breaks under it (see comm/mpi/mpi_group.h). Then the monitor's thread
// is the one that can end the process.
void guard_against_stuck_mpi(const Options& options, Rank self, Rank lost, const std::atomic<bool>& is_woken) {
  if (options.is_gloo) return;
  const Deadline deadline = in_seconds(5);
  while (!is_woken) {
    if (steady_clock::now() >= deadline) {
      write_report(options, self, "stuck=1\nlost=" + std::to_string(lost.value) + "\n");
      std::_Exit(kSurvivorStatus);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void play(const Options& options) {
  MpiRuntime runtime;
  const Rank self = runtime.rank();
  std::ofstream(options.dir + "/pid" + std::to_string(self.value)) << getpid() << "\n";
  const auto mpi = make_mpi_group(runtime);
  const auto gloo = options.is_gloo ? make_gloo_group(*mpi, {}) : nullptr;
  Group& group = options.is_gloo ? *gloo : *mpi;
  std::atomic<int> lost_rank{-1};
  std::atomic<int64_t> lost_at_us{0};
  std::once_flag first_loss;
  std::atomic<bool> is_woken{false};
  LivenessMonitor liveness(*mpi, {}, [&](Rank lost, const std::string& reason) {
    // The first loss counts; survivors that leave because of it are further ones.
    std::call_once(first_loss, [&] {
      lost_at_us = now_us();
      lost_rank = lost.value;
    });
    group.fail(lost, reason);
    guard_against_stuck_mpi(options, self, lost, is_woken);
  });
  std::thread killer;
  if (self == options.victim) {
    killer = std::thread([&options] {
      std::this_thread::sleep_for(std::chrono::milliseconds(150 + getpid() % 50));
      std::ofstream(options.dir + "/killed") << now_us() << std::flush;
      kill(getpid(), SIGKILL);
    });
  }
  std::string report;
  try {
    options.is_exchange ? exchange_for_ever(group) : wait_for_ever(group);
  } catch (const Error& error) {
    report =
        "woken_us=" + std::to_string(now_us()) + "\ncode=" + error_code_name(error.code()) + "\nerror=" + error.what() + "\n";
  }
  is_woken = true;
  runtime.abandon();
  // Who watches the dead rank hears of it from its monitor too, maybe a little later than from the data's connection.
  const Deadline deadline = in_seconds(20);
  const bool is_watcher = self == Rank{0} || options.victim == Rank{0};
  while (is_watcher && lost_rank < 0 && steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  report += "lost=" + std::to_string(lost_rank) + "\nlost_us=" + std::to_string(lost_at_us) + "\n";
  write_report(options, self, report);
  // Over MPI a worker hears of another worker's death only by rank 0 leaving.
  if (options.is_gloo || options.victim == Rank{0}) await_other_reports(options, self, group.size());
  std::_Exit(kSurvivorStatus);
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  if (argc != 5) return EXIT_FAILURE;
  try {
    ferry::play({argv[1], std::string(argv[2]) == "gloo", std::string(argv[3]) == "exchange", ferry::Rank{std::atoi(argv[4])}});
  } catch (const std::exception& error) {
    std::cerr << "FAILED: " << error.what() << "\n";
    std::_Exit(EXIT_FAILURE);
  }
  return EXIT_SUCCESS;
}
