#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/thread_pool.h"

// What it costs to share work out over threads and to wait for them: calls whose tasks are all alike, beside what their work
// alone would take if it were shared out evenly at no cost. A task works by counting time down on the clock, so that a thread
// that shares its core, or a slower core, is seen as what it is: lost time.

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr double kMeasureSeconds = 0.3;  // of a line
constexpr std::size_t kFewestCalls = 31;
constexpr std::size_t kMostCalls = 20'001;
constexpr std::size_t kQuickCalls = 3;

struct Settings {
  int threads = 0;
  int64_t spin_us = 50;  // as a rank has that shares its cores with nobody
  bool is_quick = false;
};

/// A kind of call: how many tasks a thread, how long one takes, and what the caller does alone between two calls.
struct Line {
  const char* name;
  int64_t tasks_per_thread;
  nanoseconds task, between;
};
constexpr Line kLines[] = {
    {"a task a thread of nothing, at once", 1, nanoseconds(0), nanoseconds(0)},
    {"a task a thread of nothing, after 5 us", 1, nanoseconds(0), nanoseconds(5'000)},
    {"a task a thread of nothing, after 30 us", 1, nanoseconds(0), nanoseconds(30'000)},
    {"a task a thread of nothing, after 200 us", 1, nanoseconds(0), nanoseconds(200'000)},
    {"4 tasks a thread of nothing, at once", 4, nanoseconds(0), nanoseconds(0)},
    {"64 tasks a thread of nothing, at once", 64, nanoseconds(0), nanoseconds(0)},
    {"a task a thread of 10 us, after 5 us", 1, nanoseconds(10'000), nanoseconds(5'000)},
    {"4 tasks a thread of 5 us, after 5 us", 4, nanoseconds(5'000), nanoseconds(5'000)},
    {"64 tasks a thread of 2 us, after 5 us", 64, nanoseconds(2'000), nanoseconds(5'000)},
};

void work_for(nanoseconds time) {
  if (time == nanoseconds(0)) return;
  for (const auto end = Clock::now() + time; Clock::now() < end;) __builtin_ia32_pause();
}

/// Throws Error{kInternal} unless a call runs every task once.
void verify(ThreadPool& pool) {
  std::vector<std::atomic<int>> runs(1000);
  for (std::size_t num_tasks = 1; num_tasks <= runs.size(); num_tasks += 37) {
    for (std::atomic<int>& count : runs) count = 0;
    pool.parallel_for(static_cast<int64_t>(num_tasks), [&](int64_t i, int) { ++runs[static_cast<std::size_t>(i)]; });
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (runs[i] == (i < num_tasks ? 1 : 0)) continue;
      throw Error(ErrorCode::kInternal, "task " + std::to_string(i) + " of " + std::to_string(num_tasks) + " ran " +
                                            std::to_string(runs[i]) + " times");
    }
  }
}

void measure(ThreadPool& pool, const Line& line, bool is_quick) {
  const int64_t num_tasks = line.tasks_per_thread * pool.num_threads();
  std::vector<double> us;
  const auto end = Clock::now() + std::chrono::duration<double>(kMeasureSeconds);
  while (us.size() < (is_quick ? kQuickCalls : kFewestCalls) || (!is_quick && us.size() < kMostCalls && Clock::now() < end)) {
    work_for(line.between);
    const auto start = Clock::now();
    pool.parallel_for(num_tasks, [&line](int64_t, int) { work_for(line.task); });
    us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(us.begin(), us.end());
  const double median = us[us.size() / 2];
  const double alone = static_cast<double>(line.tasks_per_thread) * 1e-3 * static_cast<double>(line.task.count());
  std::printf("%-42s %8.2f us  (best %8.2f, p99 %9.2f)  work %7.2f us  lost %8.2f us\n", line.name, median, us.front(),
              us[(99 * us.size() + 99) / 100 - 1], alone, median - alone);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Settings settings;
  settings.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  CLI::App app("what it costs to share work out over threads");
  app.add_option("--threads", settings.threads, "threads that compute")->check(CLI::Range(1, 1024));
  app.add_option("--spin", settings.spin_us, "microseconds that an idle thread spins")->check(CLI::Range(0, 1'000'000));
  app.add_flag("--quick", settings.is_quick, "few calls: only to see that the program works");
  CLI11_PARSE(app, argc, argv);
  try {
    ThreadPool pool(settings.threads, std::chrono::microseconds(settings.spin_us));
    verify(pool);
    std::printf("-- %d threads, idle ones spin for %lld us\n", settings.threads, static_cast<long long>(settings.spin_us));
    for (const Line& line : kLines) measure(pool, line, settings.is_quick);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) { return ferry::run(argc, argv); }
