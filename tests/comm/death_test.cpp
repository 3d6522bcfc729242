#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/eventually.h"

// Starts three processes under mpirun, of which one kills itself, and reads what the survivors report: who died, noticed by the
// monitor and by the wait they were in. Nothing may be left running. mpirun's own exit status says nothing with
// --enable-recovery, which a job needs to survive a death at all.

namespace ferry {
namespace {

constexpr int kNumRanks = 3;
constexpr std::chrono::seconds kMayBeStuck{5};  // after which a rank that Open MPI keeps is ended, where it may

struct DeathCase {
  std::string transport;
  std::string phase;
  int victim;
  std::vector<std::string> mca = {};  // further arguments of mpirun
  std::string suffix = {};

  bool may_be_stuck() const { return suffix == "_tcp"; }
};

void PrintTo(const DeathCase& death, std::ostream* out) { *out << death.transport << death.suffix << " " << death.phase; }

class Death : public testing::TestWithParam<DeathCase> {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "ferry_death_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // Returns true if mpirun could be started, and only when it has ended by itself.
  bool run_job(const DeathCase& death) const {
    std::vector<std::string> words = {FERRY_MPIEXEC,         "-np",  std::to_string(kNumRanks), "--oversubscribe",
                                      "--bind-to",           "none", "--allow-run-as-root",     "--mca",
                                      "mpi_yield_when_idle", "1",    "--enable-recovery"};
    words.insert(words.end(), death.mca.begin(), death.mca.end());
    const std::chrono::seconds stuck_limit = death.may_be_stuck() ? kMayBeStuck : kTestLimit;
    words.insert(words.end(), {FERRY_DEATH_PROGRAM, dir_, death.transport, death.phase, std::to_string(death.victim),
                               std::to_string(stuck_limit.count())});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    pid_t job = 0;
    const int result = posix_spawn(&job, FERRY_MPIEXEC, nullptr, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    if (result != 0) return false;
    try {
      eventually([&] { return waitpid(job, nullptr, WNOHANG) != 0; }, "mpirun to end");
    } catch (...) {
      kill(-job, SIGKILL);
      waitpid(job, nullptr, 0);
      throw;
    }
    return true;
  }

  std::map<std::string, std::string> report_of(int rank) const {
    std::map<std::string, std::string> report;
    std::ifstream file(dir_ + "/rank" + std::to_string(rank));
    std::string line;
    while (std::getline(file, line)) report[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
    return report;
  }

  int64_t number_in(const std::string& name) const {
    int64_t number = 0;
    std::ifstream(dir_ + "/" + name) >> number;
    return number;
  }

  std::string dir_;
};

bool is_gone(pid_t pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

TEST_P(Death, IsReportedByEverySurvivor) {
  const DeathCase& death = GetParam();
  ASSERT_TRUE(run_job(death)) << "mpirun could not be started";
  const int64_t killed_us = number_in("killed");
  EXPECT_GT(killed_us, 0) << "the victim did not come to its end";
  for (int rank = 0; rank < kNumRanks; ++rank) {
    const auto pid = static_cast<pid_t>(number_in("pid" + std::to_string(rank)));
    ASSERT_GT(pid, 0) << "rank " << rank;
    eventually([&] { return is_gone(pid); }, "the end of rank " + std::to_string(rank));
    if (rank == death.victim) continue;
    auto report = report_of(rank);
    EXPECT_EQ(report["status"], "43") << "rank " << rank << " did not leave as planned";
    if (death.may_be_stuck() && report["stuck"] == "1") {
      std::cout << "rank " << rank << ": Open MPI locked up, the monitor ended the process\n";
      continue;
    }
    EXPECT_EQ(report["code"], "UNAVAILABLE") << "rank " << rank << ": " << report["error"];
    // A worker does not watch the other workers: over MPI it hears only that rank 0 leaves because of the death.
    const bool is_told = rank == 0 || death.victim == 0 || death.transport == "gloo";
    const std::string lost = "rank " + std::to_string(is_told ? death.victim : 0);
    EXPECT_EQ(report["error"].substr(0, lost.size()), lost) << "rank " << rank << ": " << report["error"];
    if (rank != 0 && death.victim != 0) continue;
    EXPECT_EQ(report["lost"], std::to_string(death.victim)) << "rank " << rank;
    std::cout << "rank " << rank << ": monitor after " << std::stoll(report["lost_us"]) - killed_us << " us, wait woken after "
              << std::stoll(report["woken_us"]) - killed_us << " us\n";
  }
}

std::vector<DeathCase> all_deaths() {
  std::vector<DeathCase> cases;
  for (const std::string transport : {"mpi", "gloo"}) {
    for (const std::string phase : {"exchange", "idle"}) {
      for (const int victim : {2, 0}) cases.push_back({transport, phase, victim});
    }
  }
  const std::vector<std::string> tcp = {"--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"};
  cases.push_back({"mpi", "exchange", 2, tcp, "_tcp"});
  cases.push_back({"mpi", "exchange", 0, tcp, "_tcp"});
  return cases;
}

std::string death_name(const testing::TestParamInfo<DeathCase>& info) {
  return info.param.transport + info.param.suffix + "_" + info.param.phase + "_rank" + std::to_string(info.param.victim);
}

INSTANTIATE_TEST_SUITE_P(Of, Death, testing::ValuesIn(all_deaths()), death_name);

}  // namespace
}  // namespace ferry
