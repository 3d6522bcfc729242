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
#include "tests/comm/patient_gloo.h"
#include "tests/support/eventually.h"
#include "tests/support/in_good_time.h"

// One rank of the job that tests/comm/death_test.cpp starts:
//   death_program DIR mpi|gloo exchange|idle VICTIM STUCK_SECONDS
// Rank 0 exchanges messages with every worker, or everybody only waits, until rank VICTIM kills itself. The survivors must then
// get an error from their wait, or the monitor ends them after STUCK_SECONDS; each writes what it saw to DIR/rankN and leaves
// with kSurvivorStatus.

namespace ferry {
namespace {

using std::chrono::steady_clock;

constexpr int kSurvivorStatus = 43;
constexpr std::size_t kMessageBytes = 3000017;
constexpr int kRoundsBefore = 3;  // exchanges of the victim before it dies

struct Options {
  std::string dir;
  bool is_gloo = false;
  bool is_exchange = false;
  Rank victim;
  std::chrono::seconds stuck_limit{0};
};

std::string path_of(const Options& options, const char* what, int rank) {
  return options.dir + "/" + what + std::to_string(rank);
}

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now().time_since_epoch()).count();
}

// Rank 0 with every worker, both ways at once. The death comes at any point of it.
void exchange_for_ever(Group& group, std::atomic<int>& num_rounds) {
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
    group.group_end(test::in_good_time());
    ++num_rounds;
  }
}

void wait_for_ever(Group& group) {
  std::vector<std::byte> inbox(33);
  group.wait(*group.irecv(inbox, Rank{group.rank() == Rank{0} ? 1 : 0}, 1, Fit::kUpTo), test::in_good_time());
}

// Waits until every other survivor has reported, so that none takes this one's end for the death that it should see.
void await_other_reports(const Options& options, Rank self, int size) {
  for (int r = 0; r < size; ++r) {
    if (Rank{r} == self || Rank{r} == options.victim) continue;
    eventually([&] { return std::filesystem::exists(path_of(options, "rank", r)); }, "the report of rank " + std::to_string(r));
  }
}

// The victim's end: when all ranks are at their waits, and messages went to and fro if there are any.
void die_in_the_middle(const Options& options, int size, const std::atomic<int>& num_rounds) {
  for (int r = 0; r < size; ++r)
    eventually([&] { return std::filesystem::exists(path_of(options, "waits", r)); }, "rank " + std::to_string(r));
  if (options.is_exchange) eventually([&] { return num_rounds >= kRoundsBefore; }, "the first exchanges");
  std::ofstream(options.dir + "/killed") << now_us() << std::flush;
  kill(getpid(), SIGKILL);
}

void write_report(const Options& options, Rank self, const std::string& report) {
  const std::string path = path_of(options, "rank", self.value);
  std::ofstream(path + ".tmp") << report << "status=" << kSurvivorStatus << "\n";
  std::filesystem::rename(path + ".tmp", path);
}

// Open MPI may never come back from a TCP connection that breaks under it (see comm/mpi/mpi_group.h). Then the monitor's thread
// is the one that can end the process.
void guard_against_stuck_mpi(const Options& options, Rank self, Rank lost, const std::atomic<bool>& is_woken) {
  if (options.is_gloo) return;
  const Deadline deadline = steady_clock::now() + options.stuck_limit;
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
  std::ofstream(path_of(options, "pid", self.value)) << getpid() << "\n";
  const auto mpi = make_mpi_group(runtime);
  const auto gloo = options.is_gloo ? make_gloo_group(*mpi, suite::patient_gloo()) : nullptr;
  Group& group = options.is_gloo ? *gloo : *mpi;
  std::atomic<int> lost_rank{-1};
  std::atomic<int64_t> lost_at_us{0};
  std::once_flag first_loss;
  std::atomic<bool> is_woken{false};
  LivenessMonitor liveness(*mpi, suite::patient_gloo(), [&](Rank lost, const std::string& reason) {
    // The first loss counts; survivors that leave because of it are further ones.
    std::call_once(first_loss, [&] {
      lost_at_us = now_us();
      lost_rank = lost.value;
    });
    group.fail(lost, reason);
    guard_against_stuck_mpi(options, self, lost, is_woken);
  });
  std::atomic<int> num_rounds{0};
  std::thread killer;
  if (self == options.victim) killer = std::thread([&, size = group.size()] { die_in_the_middle(options, size, num_rounds); });
  std::string report;
  std::ofstream(path_of(options, "waits", self.value)) << std::flush;
  try {
    options.is_exchange ? exchange_for_ever(group, num_rounds) : wait_for_ever(group);
  } catch (const Error& error) {
    report =
        "woken_us=" + std::to_string(now_us()) + "\ncode=" + error_code_name(error.code()) + "\nerror=" + error.what() + "\n";
  }
  is_woken = true;
  runtime.abandon();
  // Who watches the dead rank hears of it from its monitor too, maybe a little later than from the data's connection.
  const bool is_watcher = self == Rank{0} || options.victim == Rank{0};
  if (is_watcher) eventually([&] { return lost_rank >= 0; }, "the monitor's notice");
  report += "lost=" + std::to_string(lost_rank) + "\nlost_us=" + std::to_string(lost_at_us) + "\n";
  write_report(options, self, report);
  // Over MPI a worker hears of another worker's death only by rank 0 leaving.
  if (options.is_gloo || options.victim == Rank{0}) await_other_reports(options, self, group.size());
  std::_Exit(kSurvivorStatus);
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  if (argc != 6) return EXIT_FAILURE;
  try {
    ferry::play({.dir = argv[1],
                 .is_gloo = std::string(argv[2]) == "gloo",
                 .is_exchange = std::string(argv[3]) == "exchange",
                 .victim = ferry::Rank{std::atoi(argv[4])},
                 .stuck_limit = std::chrono::seconds(std::atoi(argv[5]))});
  } catch (const std::exception& error) {
    std::cerr << "FAILED: " << error.what() << "\n";
    std::_Exit(EXIT_FAILURE);
  }
  return EXIT_SUCCESS;
}
