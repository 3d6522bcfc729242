#include "launch/roof.h"

#include <algorithm>
#include <chrono>

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kStreamBytes = std::size_t{512} << 20;  // far beyond the caches
constexpr int kReadRounds = 5;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

uint64_t read_words(const uint64_t* words, std::size_t count) {
  uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  return sum;
}

double measure_read(ThreadPool& pool) {
  AlignedBuffer stream(kStreamBytes);
  const auto threads = static_cast<std::size_t>(pool.num_threads());
  const std::size_t words_each = kStreamBytes / sizeof(uint64_t) / threads;
  std::vector<uint64_t> sums(threads);
  double best = 0;
  for (int round = 0; round < kReadRounds; ++round) {
    const auto start = Clock::now();
    pool.parallel_for(pool.num_threads(), [&](int64_t part, int) {
      sums[static_cast<std::size_t>(part)] +=
          read_words(stream.as<uint64_t>() + static_cast<std::size_t>(part) * words_each, words_each);
    });
    best = std::max(best, static_cast<double>(threads * words_each * sizeof(uint64_t)) / seconds_since(start));
  }
  // The buffer is all zeros; using the sums keeps the reads from being optimised away.
  return sums[0] == 0 ? best : 0;
}

double measure_flops(ThreadPool& pool, MatmulBackend& matmul, DType dtype) {
  constexpr int64_t kRows = 256, kInner = 1024, kColumnsPerThread = 512;
  const int64_t columns = kColumnsPerThread * pool.num_threads();
  Matrix x(dtype, kRows, kInner), w(dtype, columns, kInner), out(dtype, kRows, columns);
  const std::unique_ptr<PackedMatrix> packed = matmul.pack(w.view());
  double best = 0;
  for (const auto start = Clock::now(); seconds_since(start) < 0.5;) {
    const auto one = Clock::now();
    matmul.matmul(pool, x.view(), *packed, out.view());
    best = std::max(best, 2.0 * static_cast<double>(kRows * kInner * columns) / seconds_since(one));
  }
  return best;
}

}  // namespace

Roof measure_roof(ThreadPool& pool, MatmulBackend& matmul, DType dtype) {
  return {.read_bytes_per_s = measure_read(pool), .flops_per_s = measure_flops(pool, matmul, dtype)};
}

}  // namespace ferry
