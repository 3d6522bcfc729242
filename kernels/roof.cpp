#include "kernels/roof.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "kernels/roof_probe.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPasses = 6;
constexpr std::chrono::milliseconds kMultiplyTime{20};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

RoofProbe::RoofProbe(ThreadPool& pool, std::size_t stream_bytes)
    : pool_(pool), stream_bytes_(stream_bytes), stream_(stream_bytes) {}

double RoofProbe::read_bytes_per_s() {
  const auto threads = static_cast<std::size_t>(pool_.num_threads());
  const std::size_t bytes_each = stream_bytes_ / threads / 4096 * 4096;
  std::atomic<uint64_t> checksum{0};
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = Clock::now();
    pool_.parallel_for(pool_.num_threads(), [&](int64_t part, int) {
      checksum += read_stream(stream_.data() + static_cast<std::size_t>(part) * bytes_each, bytes_each);
    });
    best = std::max(best, static_cast<double>(threads * bytes_each) / seconds_since(start));
  }
  FERRY_CHECK(checksum == 0) << " the stream is all zeros";
  return best;
}

double RoofProbe::flops_per_s(DType dtype, std::string_view matmul) {
  constexpr int64_t kRounds = 20000;
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::atomic<double> operations{0};
    const auto start = Clock::now();
    pool_.parallel_for(pool_.num_threads(), [&](int64_t, int) {
      double done = 0;
      while (Clock::now() - start < kMultiplyTime) done += multiply_in_registers(dtype, kRounds, matmul);
      operations += done;
    });
    best = std::max(best, operations / seconds_since(start));
  }
  return best;
}

}  // namespace ferry
