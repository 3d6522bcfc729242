#include "kernels/roof.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "kernels/cpu/weight_arena.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

constexpr int kReadPasses = 2;
constexpr int kMultiplyPasses = 30;  // many short ones: of a busy host's few are undisturbed
constexpr std::chrono::milliseconds kMultiplyTime{4};
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;        // of memory; less where there is less than a few a thread
constexpr std::size_t kFewestBytesRead = std::size_t{32} << 20;  // of a pass and thread: starting them must not count
constexpr std::size_t kFewestPartBytes = std::size_t{16} << 10;  // below, what surrounds the loads would count
constexpr std::size_t kPiecesPerThread = 8;

std::size_t round_down(std::size_t bytes, std::size_t unit) { return bytes / unit * unit; }

}  // namespace

RoofProbe::RoofProbe(ThreadPool& pool, std::size_t stream_bytes, Clock& clock)
    : pool_(pool),
      clock_(clock),
      stream_bytes_(stream_bytes),
      stream_(WeightArena(MemoryUse::kBuffers).allocate(stream_bytes)) {
  pool_.parallel_for(static_cast<int64_t>((stream_bytes_ + kPieceBytes - 1) / kPieceBytes), [&](int64_t piece, int) {
    const std::size_t begin = static_cast<std::size_t>(piece) * kPieceBytes;
    for (std::size_t at = begin; at < std::min(begin + kPieceBytes, stream_bytes_); at += kPageBytes)
      *reinterpret_cast<volatile std::byte*>(stream_.get() + at) = std::byte{0};
  });
}

double RoofProbe::seconds_since(Clock::Time start) const { return std::chrono::duration<double>(clock_.now() - start).count(); }

/// What can be shared out evenly: at least kFewestPartBytes for each thread, or all of a smaller stream.
std::size_t RoofProbe::usable_bytes(std::size_t num_bytes) const {
  const auto num_threads = static_cast<std::size_t>(pool_.num_threads());
  const std::size_t unit = num_threads * kStreamUnitBytes;
  FERRY_CHECK_GE(stream_bytes_, unit);
  return round_down(std::min(std::max(num_bytes, num_threads * kFewestPartBytes), stream_bytes_), unit);
}

int64_t RoofProbe::rounds_of(std::size_t bytes) const {
  return static_cast<int64_t>((kFewestBytesRead * static_cast<std::size_t>(pool_.num_threads()) + bytes - 1) / bytes);
}

double RoofProbe::best_bytes_per_s(std::size_t num_bytes, StreamAccess access) {
  const std::size_t bytes = usable_bytes(num_bytes);
  double best = 0;
  for (int pass = 0; pass < kReadPasses; ++pass) {
    for (const StreamPattern pattern : kStreamPatterns) best = std::max(best, parts_bytes_per_s(bytes, pattern, access));
    if (access == StreamAccess::kRewrite) continue;
    for (const StreamPattern pattern : kStreamPatterns) best = std::max(best, pieces_bytes_per_s(bytes, pattern));
  }
  return best;
}

double RoofProbe::read_bytes_per_s(std::size_t num_bytes, ReadSharing sharing, StreamPattern pattern) {
  const std::size_t bytes = usable_bytes(num_bytes);
  return sharing == ReadSharing::kParts ? parts_bytes_per_s(bytes, pattern, StreamAccess::kRead)
                                        : pieces_bytes_per_s(bytes, pattern);
}

double RoofProbe::parts_bytes_per_s(std::size_t num_bytes, StreamPattern pattern, StreamAccess access) {
  const std::size_t part_bytes = num_bytes / static_cast<std::size_t>(pool_.num_threads());
  const int64_t rounds = rounds_of(num_bytes);
  std::atomic<uint64_t> checksum{0};
  const auto start = clock_.now();
  pool_.parallel_for(pool_.num_threads(), [&](int64_t part, int) {
    std::byte* data = stream_.get() + static_cast<std::size_t>(part) * part_bytes;
    uint64_t sum = 0;
    for (int64_t r = 0; r < rounds; ++r) sum += walk_stream(data, part_bytes, pattern, access);
    checksum += sum;
  });
  const double seconds = seconds_since(start);
  FERRY_CHECK(checksum == 0) << " the stream is all zeros";
  const int ways = access == StreamAccess::kRewrite ? 2 : 1;
  return static_cast<double>(ways * rounds) * static_cast<double>(num_bytes) / seconds;
}

double RoofProbe::pieces_bytes_per_s(std::size_t num_bytes, StreamPattern pattern) {
  const std::size_t share = num_bytes / static_cast<std::size_t>(pool_.num_threads()) / kPiecesPerThread;
  const std::size_t piece_bytes = std::clamp(round_down(share, kStreamUnitBytes), kStreamUnitBytes, kPieceBytes);
  const auto num_pieces = static_cast<int64_t>((num_bytes + piece_bytes - 1) / piece_bytes);
  const int64_t rounds = rounds_of(num_bytes);
  std::atomic<uint64_t> checksum{0};
  const auto start = clock_.now();
  pool_.parallel_for(rounds * num_pieces, [&](int64_t task, int) {
    const std::size_t begin = static_cast<std::size_t>(task % num_pieces) * piece_bytes;
    checksum += walk_stream(stream_.get() + begin, std::min(piece_bytes, num_bytes - begin), pattern, StreamAccess::kRead);
  });
  const double seconds = seconds_since(start);
  FERRY_CHECK(checksum == 0) << " the stream is all zeros";
  return static_cast<double>(rounds) * static_cast<double>(num_bytes) / seconds;
}

double RoofProbe::flops_per_s(DType dtype, std::string_view matmul) {
  constexpr int64_t kRounds = 2000;
  double best = 0;
  for (int pass = 0; pass < kMultiplyPasses; ++pass) {
    std::atomic<double> operations{0};
    const auto start = clock_.now();
    pool_.parallel_for(pool_.num_threads(), [&](int64_t, int) {
      double done = 0;
      while (clock_.now() - start < kMultiplyTime) done += multiply_in_registers(dtype, kRounds, matmul);
      operations += done;
    });
    best = std::max(best, operations / seconds_since(start));
  }
  return best;
}

}  // namespace ferry
