#include "tests/sim/seed_runner.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

#include "runtime/base/check.h"
#include "tests/support/eventually.h"

namespace ferry::sim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kStuck = kTestLimit;  // of real time, in one run
constexpr int kExitFailed = 3;       // of a process whose seed failed

/// What a process tells its parent.
struct Shared {
  std::atomic<int64_t> seed{0};  // that it plays
  SimTotals totals;              // of the seeds before
};

/// Copies the end of a file to stderr.
void show_errors(std::FILE* file) {
  constexpr off_t kMost = 8192;
  const off_t size = ::lseek(::fileno(file), 0, SEEK_END);
  std::array<char, kMost> text{};
  const ssize_t num_read = ::pread(::fileno(file), text.data(), text.size(), std::max<off_t>(size - kMost, 0));
  if (num_read > 0) std::fwrite(text.data(), 1, static_cast<std::size_t>(num_read), stderr);
}

ErrorCode code_at(int idx) { return static_cast<ErrorCode>(idx); }

}  // namespace

struct SeedRunner::Job {
  Job() {
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FERRY_CHECK(memory != MAP_FAILED && errors != nullptr);
    shared = std::construct_at(static_cast<Shared*>(memory));
  }
  ~Job() {
    ::munmap(shared, sizeof(Shared));
    std::fclose(errors);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  Shared* shared = nullptr;
  std::FILE* const errors = std::tmpfile();  // stderr, of the seed that is played
  pid_t pid = -1;                            // none
  int64_t last_seed = 0;
  Clock::time_point since;  // last_seed is played
};

void SimTotals::add(const SimResult& result) {
  ++num_runs;
  num_whole += result.is_whole ? 1 : 0;
  num_errors += result.errors.empty() ? 0 : 1;
  for (int c = 0; c < kNumCodes; ++c) {
    const auto found = result.errors.find(error_code_name(code_at(c)));
    if (found != result.errors.end()) errors_by_code[static_cast<std::size_t>(c)] += found->second;
  }
  for (std::size_t k = 0; k < num_faults.size(); ++k) num_faults[k] += result.num_faults[k];
  num_messages += result.num_messages;
  num_covered_rows += result.num_covered;
  num_placements += result.num_placements;
  virtual_s += std::chrono::duration<double>(result.elapsed).count();
}

void SimTotals::add(const SimTotals& other) {
  num_runs += other.num_runs;
  num_whole += other.num_whole;
  num_errors += other.num_errors;
  for (std::size_t c = 0; c < errors_by_code.size(); ++c) errors_by_code[c] += other.errors_by_code[c];
  for (std::size_t k = 0; k < num_faults.size(); ++k) num_faults[k] += other.num_faults[k];
  num_messages += other.num_messages;
  num_covered_rows += other.num_covered_rows;
  num_placements += other.num_placements;
  virtual_s += other.virtual_s;
}

SeedRunner::SeedRunner(SeedRange seeds, int num_jobs, PlaySeed play_seed)
    : seeds_(seeds), num_jobs_(num_jobs), play_seed_(std::move(play_seed)) {}

std::vector<int64_t> SeedRunner::run(int64_t max_failures) {
  std::vector<std::unique_ptr<Job>> jobs;
  for (int j = 0; j < num_jobs_; ++j) {
    jobs.push_back(std::make_unique<Job>());
    start(*jobs.back(), seeds_.first + j);
  }
  const auto is_running = [](const auto& job) { return job->pid >= 0; };
  while (std::ranges::any_of(jobs, is_running)) {
    for (const auto& job : jobs) {
      if (is_running(job)) look_after(*job);
    }
    if (std::ssize(failed_) >= max_failures) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const auto& job : jobs) {
    if (!is_running(job)) continue;
    ::kill(job->pid, SIGKILL);
    ::waitpid(job->pid, nullptr, 0);
    totals_.add(job->shared->totals);
  }
  std::ranges::sort(failed_);
  return failed_;
}

void SeedRunner::start(Job& job, int64_t first_seed) {
  if (first_seed > seeds_.last) return;
  std::construct_at(job.shared);
  job.shared->seed = job.last_seed = first_seed;
  job.since = Clock::now();
  std::fflush(nullptr);
  job.pid = ::fork();
  FERRY_CHECK_GE(job.pid, 0);
  if (job.pid == 0) play_all(job, first_seed);
}

void SeedRunner::play_all(Job& job, int64_t first_seed) {
  ::dup2(::fileno(job.errors), STDERR_FILENO);
  for (int64_t seed = first_seed; seed <= seeds_.last; seed += num_jobs_) {
    FERRY_CHECK(::ftruncate(STDERR_FILENO, 0) == 0 && ::lseek(STDERR_FILENO, 0, SEEK_SET) == 0);
    job.shared->seed = seed;
    if (play_seed_(seed, job.shared->totals)) continue;
    std::fflush(nullptr);
    std::_Exit(kExitFailed);
  }
  std::fflush(nullptr);
  std::_Exit(EXIT_SUCCESS);
}

void SeedRunner::look_after(Job& job) {
  int status = 0;
  const int64_t seed = job.shared->seed;
  if (::waitpid(job.pid, &status, WNOHANG) == 0) {
    if (seed != job.last_seed) {
      job.last_seed = seed;
      job.since = Clock::now();
    } else if (Clock::now() - job.since > kStuck) {
      std::printf("seed %lld does not come to an end\n", static_cast<long long>(seed));
      ::kill(job.pid, SIGKILL);
    }
    return;
  }
  job.pid = -1;
  totals_.add(job.shared->totals);
  if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS) return;
  const int64_t last = job.shared->seed;
  if (WIFSIGNALED(status)) std::printf("seed %lld ends in signal %d\n", static_cast<long long>(last), WTERMSIG(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) != kExitFailed)
    std::printf("seed %lld ends its process with exit code %d\n", static_cast<long long>(last), WEXITSTATUS(status));
  failed_.push_back(last);
  std::fflush(nullptr);
  show_errors(job.errors);
  start(job, last + num_jobs_);
}

}  // namespace ferry::sim
