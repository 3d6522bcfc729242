#include "runtime/trace/trace_worker.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "profiler/own_cores.h"
#include "profiler/recorder.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

TraceWorker::TraceWorker(Rank rank, int32_t num_threads, const ClockSkew& skew)
    : rank_(rank), num_threads_(num_threads), skew_(skew), skew_reference_ns_(monotonic_ns()) {
  boot_id_ = kernel_boot_id();
  if (skew_.rank == rank_.value) boot_id_ += "-skewed";
}

TraceWorker::~TraceWorker() {
  if (is_detailed_) recorder().set_step_level(TraceLevel::kOff);
}

std::span<const std::byte> TraceWorker::answer(std::span<const std::byte> message) {
  const TraceCommand command = parse_trace_command(message);
  TraceReply reply{.number = command.number};
  reply.header.map_epoch = command.header.map_epoch;
  try {
    run(command, reply);
  } catch (const std::exception& error) {  // memory may run out; the job goes on without this rank's part
    std::snprintf(reply.complaint, sizeof reply.complaint, "%s", error.what());
    std::vector<std::byte>().swap(encoded_);
  }
  reply.clock_ns = clock_ns(monotonic_ns());
  std::snprintf(reply.boot_id, sizeof reply.boot_id, "%s", boot_id_.c_str());
  const int64_t num_carried = brings_bytes(command.op) ? reply.num_bytes : 0;
  reply_.resize(sizeof reply + static_cast<std::size_t>(num_carried));
  std::memcpy(reply_.data(), &reply, sizeof reply);
  if (command.op == TraceCommand::Op::kTakeSteps && num_carried > 0) {
    std::memcpy(reply_.data() + sizeof reply, taken_.data(), taken_.size());
  } else if (num_carried > 0) {
    std::memcpy(reply_.data() + sizeof reply, encoded_.data() + command.offset, static_cast<std::size_t>(num_carried));
    if (command.offset + num_carried == static_cast<int64_t>(encoded_.size())) std::vector<std::byte>().swap(encoded_);
  }
  return reply_;
}

void TraceWorker::run(const TraceCommand& command, TraceReply& reply) {
  switch (command.op) {
    case TraceCommand::Op::kStart:
      recorder().start({.level = static_cast<TraceLevel>(command.level), .max_bytes = command.max_bytes});
      break;
    case TraceCommand::Op::kStop: keep(recorder().stop()); break;
    case TraceCommand::Op::kSnapshot: keep(recorder().snapshot()); break;
    case TraceCommand::Op::kFetch: {
      const int64_t left = static_cast<int64_t>(encoded_.size()) - command.offset;
      if (command.offset < 0 || left < 0) throw Error(ErrorCode::kInternal, "a piece of no capture was asked for");
      reply.num_bytes = std::min(left, kTracePieceBytes);
      return;
    }
    case TraceCommand::Op::kTakeSteps:
      take_steps(command.offset);
      reply.num_bytes = static_cast<int64_t>(taken_.size());
      return;
    case TraceCommand::Op::kReadClock: break;
    case TraceCommand::Op::kDiscard:
      recorder().discard();
      std::vector<std::byte>().swap(encoded_);
      break;
  }
  reply.num_bytes = static_cast<int64_t>(encoded_.size());
}

void TraceWorker::note_rows(int64_t step, uint64_t begun, bool is_detailed) {
  marks_.note(step, begun);
  if (is_detailed == is_detailed_) return;
  is_detailed_ = is_detailed;
  recorder().set_step_level(is_detailed ? TraceLevel::kOperators : TraceLevel::kOff);
}

void TraceWorker::take_steps(int64_t first) {
  RankCapture capture = recorder().snapshot_since(marks_.begin_of(first));
  keep_steps_from(first, capture);
  describe(capture);
  taken_ = encode_rank_capture(capture);
  if (std::ssize(taken_) <= kTracePieceBytes) return;
  const std::size_t num_bytes = taken_.size();
  taken_.clear();
  throw Error(ErrorCode::kResourceExhausted, "steps of " + std::to_string(num_bytes) + " bytes are too large for a sample");
}

void TraceWorker::keep(RankCapture capture) {
  describe(capture);
  encoded_ = encode_rank_capture(capture);
}

/// Whose it is, by which clock.
void TraceWorker::describe(RankCapture& capture) const {
  capture.rank = rank_.value;
  capture.num_threads = num_threads_;
  capture.cores = own_cores();
  capture.boot_id = boot_id_;
  if (skew_.rank == rank_.value) {
    capture.ticks.base_ns = clock_ns(capture.ticks.base_ns);
    capture.ticks.ns_per_tick *= 1 + skew_.drift_ppm * 1e-6;
  }
}

/// This rank's clock when the host's says `ns`.
int64_t TraceWorker::clock_ns(int64_t ns) const {
  if (skew_.rank != rank_.value) return ns;
  const double drifted = static_cast<double>(ns - skew_reference_ns_) * skew_.drift_ppm * 1e-6;
  return ns + skew_.offset_ns + std::llround(drifted);
}

}  // namespace ferry
