#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/weight_arena.h"
#include "kernels/cpu_features.h"
#include "kernels/roof.h"
#include "tests/bench/bench.h"
#include "tests/support/memory_loop.h"
#include "tests/support/multiply_bound.h"

// The roofs that benchmarks hold their figures against, each beside what bounds it: multiply-adds beside what the instruction
// set allows in the cycles that the core really does and beside the same loop in assembly, reading beside a plain loop of the
// compiler's. And benchmarks themselves: plain sums of what lies in each level of the caches and in memory, in assembly, may
// not exceed their roof, and must reach it where no cache is shared. PASS or FAIL; the exit code is 1 after a FAIL.

namespace ferry {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kQuickBytes = std::size_t{8} << 20;
constexpr double kQuickTolerance = 1.5;      // clocks move between few tries; merged chains would be off by a factor of 2
constexpr double kReadTolerance = 1.10;      // the second read probe may be faster than the roof by this: hosts move
constexpr double kMostShare = 1.05;          // of the roof that a plain loop reaches; as in ferry bench
constexpr double kLeastReadShare = 0.80;     // likewise
constexpr double kLeastRewriteShare = 0.65;  // likewise; the roof's ways to walk are better than that loop's
constexpr int kMostTries = 5;                // of such a line
// Of a thread. Between the two, some of it lies in a cache, depending on how it is walked and on who else has that cache.
constexpr std::size_t kOwnCacheBytes = std::size_t{512} << 10, kMemoryBytes = std::size_t{256} << 20;
constexpr std::size_t kLoopBytes = std::size_t{32} << 20;  // that a thread takes in a call, so that starting it does not count

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

class RoofCheck {
 public:
  RoofCheck(int num_threads, bool is_quick)
      : pool_(num_threads), is_quick_(is_quick), roof_(pool_, is_quick ? kQuickBytes : RoofProbe::kStreamBytes) {}

  /// Whether all roofs are possible.
  bool run() {
    std::printf("-- %d thread%s\n", pool_.num_threads(), pool_.num_threads() == 1 ? "" : "s");
    std::vector<std::string> seen;
    for (const char* matmul : {"amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2", "ref"}) {
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
        const std::string unit = multiply_unit(dtype, matmul);
        if (std::find(seen.begin(), seen.end(), unit) != seen.end()) continue;
        seen.push_back(unit);
        check_multiply(dtype, matmul, unit);
      }
    }
    check_read();
    check_bench();
    return is_good_;
  }

 private:
  void check_multiply(DType dtype, const char* matmul, const std::string& unit);
  void check_read();
  void print_read_ways();
  void check_bench();
  void check_line(bench::Bench& bench, std::size_t part_bytes, StreamAccess access);
  double plain_read_bytes_per_s();
  void verdict(bool is_good) {
    is_good_ = is_good_ && is_good;
    std::printf("  %s\n", is_good ? "PASS" : "FAIL");
    std::fflush(stdout);
  }

  ThreadPool pool_;
  const bool is_quick_;
  RoofProbe roof_;
  bool is_good_ = true;
};

void RoofCheck::check_multiply(DType dtype, const char* matmul, const std::string& unit) {
  const int tries = is_quick_ ? 10 : 100;
  std::vector<MultiplyRates> of_thread(static_cast<std::size_t>(pool_.num_threads()));
  std::vector<std::thread> threads;  // not the pool's: each must have one thread's rate
  for (MultiplyRates& rates : of_thread) threads.emplace_back([&] { rates = measure_multiply_rates(dtype, matmul, tries); });
  for (std::thread& thread : threads) thread.join();
  MultiplyRates sum;
  for (const MultiplyRates& rates : of_thread) {
    sum.cycles_per_s += rates.cycles_per_s;
    sum.probe_per_s += rates.probe_per_s;
    sum.assembly_per_s += rates.assembly_per_s;
  }
  const double roof = roof_.flops_per_s(dtype, matmul), bound = most_operations_per_cycle(unit) * sum.cycles_per_s;
  std::printf(
      "%-13s roof %9.1f GFLOP/s  threads' best %9.1f  in assembly %9.1f  bound %9.1f (%g a cycle, %.2f Gcycles/s a core)",
      unit.c_str(), roof * 1e-9, sum.probe_per_s * 1e-9, sum.assembly_per_s * 1e-9, bound * 1e-9,
      most_operations_per_cycle(unit), sum.cycles_per_s * 1e-9 / pool_.num_threads());
  MultiplyRates rates = sum;
  rates.probe_per_s = std::max(rates.probe_per_s, roof);
  if (is_quick_) rates.assembly_per_s = 0;  // taken after the roof: a neighbour may have come between the two
  verdict(is_possible(rates, unit, is_quick_ ? kQuickTolerance : kRateTolerance));
}

/// Sums of words as the compiler makes them, memory of its own, threads of its own, each with one fixed part.
double RoofCheck::plain_read_bytes_per_s() {
  const auto num_threads = static_cast<std::size_t>(pool_.num_threads());
  const std::size_t words = (is_quick_ ? kQuickBytes : RoofProbe::kStreamBytes) / sizeof(uint64_t) / num_threads;
  const int passes = is_quick_ ? 3 : 10;
  std::atomic<int> num_ready{0};
  std::atomic<uint64_t> checksum{0};
  std::vector<double> rates(num_threads);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<uint64_t> part(words, 1);
      ++num_ready;
      while (num_ready.load() < static_cast<int>(num_threads)) std::this_thread::yield();
      for (int pass = 0; pass < passes; ++pass) {
        const auto start = SteadyClock::now();
        uint64_t sum = 0;
        for (const uint64_t word : part) sum += word;
        checksum += sum;
        rates[t] = std::max(rates[t], static_cast<double>(words * sizeof(uint64_t)) / seconds_since(start));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (checksum != words * num_threads * static_cast<uint64_t>(passes)) return 0;
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

void RoofCheck::print_read_ways() {
  constexpr const char* kPatternNames[] = {"one stream", "one stream, prefetched", "four streams", "four streams, prefetched"};
  for (const ReadSharing sharing : {ReadSharing::kParts, ReadSharing::kPieces}) {
    for (std::size_t p = 0; p < kStreamPatterns.size(); ++p) {
      double best = 0;
      for (int pass = 0; pass < 5; ++pass) {
        const std::size_t all = is_quick_ ? kQuickBytes : RoofProbe::kStreamBytes;
        best = std::max(best, roof_.read_bytes_per_s(all, sharing, kStreamPatterns[p]));
      }
      std::printf("  read in %s, %-24s %7.1f GB/s\n", sharing == ReadSharing::kParts ? "parts, " : "pieces,", kPatternNames[p],
                  best * 1e-9);
    }
  }
}

void RoofCheck::check_read() {
  if (!is_quick_) print_read_ways();
  const double roof = std::max(roof_.read_bytes_per_s(), roof_.read_bytes_per_s());
  const double plain = plain_read_bytes_per_s();
  std::printf("read from memory  roof %7.1f GB/s  plain loop %7.1f", roof * 1e-9, plain * 1e-9);
  verdict(is_quick_ || (plain > 0 && plain <= kReadTolerance * roof));
  if (is_quick_) return;
  for (const std::size_t megabytes : {1, 4, 16, 64, 256, 512}) {
    std::printf("  read %4zu MB again and again %7.1f GB/s\n", megabytes, roof_.read_bytes_per_s(megabytes << 20) * 1e-9);
  }
}

void RoofCheck::check_bench() {
  bench::Bench bench({.threads = pool_.num_threads(), .is_quick = is_quick_, .kernels = "", .only = ""});
  for (const std::size_t kilobytes : {32, 256, 512, 2 << 10, 8 << 10, 256 << 10}) {
    for (const StreamAccess access : {StreamAccess::kRead, StreamAccess::kRewrite}) {
      if (!is_quick_ || kilobytes == 32) check_line(bench, kilobytes << 10, access);
    }
  }
}

/// A line of a benchmark, over `part_bytes` of each thread's own again and again.
void RoofCheck::check_line(bench::Bench& bench, std::size_t part_bytes, StreamAccess access) {
  const auto num_threads = static_cast<std::size_t>(bench.pool().num_threads());
  const bool is_read = access == StreamAccess::kRead;
  const std::size_t rounds = std::max<std::size_t>(1, kLoopBytes / part_bytes), words = part_bytes / sizeof(uint64_t);
  const auto data = WeightArena().allocate(num_threads * part_bytes);
  std::vector<uint64_t> times_added(num_threads, 1);
  std::atomic<bool> is_right{true};
  bench.pool().parallel_for(static_cast<int64_t>(num_threads), [&](int64_t part, int) {
    add_one_in_assembly(data.get() + static_cast<std::size_t>(part) * part_bytes, part_bytes);  // no page is read unwritten
  });
  const auto call = [&](int64_t) {
    bench.pool().parallel_for(static_cast<int64_t>(num_threads), [&](int64_t part, int) {
      const auto t = static_cast<std::size_t>(part);
      std::byte* own = data.get() + t * part_bytes;
      for (std::size_t r = 0; r < rounds; ++r) {
        const uint64_t sum = is_read ? sum_in_assembly(own, part_bytes) : add_one_in_assembly(own, part_bytes);
        if (sum != words * times_added[t]) is_right = false;
        if (!is_read) ++times_added[t];
      }
    });
  };
  const auto working_set = static_cast<double>(num_threads * part_bytes);
  const double bytes = working_set * static_cast<double>(rounds) * (is_read ? 1 : 2);
  const bench::Work work{
      .bytes = bytes, .rewritten_bytes = is_read ? 0 : bytes, .working_set = working_set, .dtype = DType::kF32, .kernels = ""};
  const std::string name =
      std::string(is_read ? "sum of " : "one more in ") + std::to_string(part_bytes >> 10) + " KB a thread";
  const bool is_between = part_bytes > kOwnCacheBytes && part_bytes < kMemoryBytes;
  const double least_share = is_between ? 0 : is_read ? kLeastReadShare : kLeastRewriteShare;
  bool is_good = false;
  for (int i = 0; i < kMostTries && !is_good; ++i) {
    const double share = bench.measure(name, work, call);
    is_good = is_quick_ ? share <= kQuickTolerance : share <= kMostShare && share >= least_share;
  }
  verdict(is_good && is_right);
}

int run(int argc, char** argv) {
  int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  bool is_quick = false;
  CLI::App app("holds the roofs of benchmarks against what the instruction set allows and against second probes");
  app.add_option("--threads", threads, "threads of the second half; the first has one")->check(CLI::PositiveNumber);
  app.add_flag("--quick", is_quick, "few tries and small sizes; judged by the bound of the instruction set alone");
  CLI11_PARSE(app, argc, argv);
  std::printf("avx2 %d, avx512 %d, avx512_bf16 %d, avx512_vnni %d, amx %d\n", has_avx2(), has_avx512(), has_avx512_bf16(),
              has_avx512_vnni(), has_amx());
  const bool one_is_good = RoofCheck(1, is_quick).run();
  const bool all_are_good = threads == 1 || RoofCheck(threads, is_quick).run();
  std::printf("%s\n", one_is_good && all_are_good ? "PASS" : "FAIL");
  return one_is_good && all_are_good ? 0 : 1;
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) { return ferry::run(argc, argv); }
