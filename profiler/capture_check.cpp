#include "profiler/capture_check.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kMostTime = int64_t{1} << 61;                             // ns: differences of two, twice, do not overflow
constexpr double kLongestCapture = 366.0 * 86400e9;                         // ns
constexpr int64_t kMostBytes = int64_t{1} << 50;                            // of a process
constexpr int64_t kMostCount = int64_t{1} << 56;                            // cycles of two years fit
constexpr uint32_t kMostStepRows = 1 << 20;                                 // what --token-budget allows
constexpr double kMostPerSecond = 1e18;                                     // bytes, operations
constexpr double kMostAmount = 1e24;                                        // bytes or operations of an operator's call
constexpr double kSlowestTick = 1e9, kMostDrift = 0.1, kLongestCost = 1e9;  // ns; share; ns

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

/// Complains in the name of a file, or of a section of it.
class Checker {
 public:
  explicit Checker(std::string source) : source_(std::move(source)) {}

  [[noreturn]] void refuse(const std::string& what, const std::string& value) const {
    throw_invalid(source_ + ": " + what + " is " + value + "; allowed: a capture file that Ferry wrote");
  }
  void count(const char* what, int64_t value, int64_t most = kMostCount) const {
    if (value < 0 || value > most) refuse(what, std::to_string(value));
  }
  /// Counts that are read without a sign: of a negative number they are beyond all.
  void unsigned_count(const char* what, uint64_t value) const { count(what, static_cast<int64_t>(value)); }
  void time(const char* what, int64_t ns) const {
    if (ns < -kMostTime || ns > kMostTime) refuse(what, std::to_string(ns) + " ns");
  }
  void number(const char* what, double value, double least, double most) const {
    if (!(value >= least && value <= most)) refuse(what, number_text(value));
  }
  void ticks(const char* what, uint64_t moment, const TickLine& line) const {
    const double ns = static_cast<double>(static_cast<int64_t>(moment - line.base_ticks)) * line.ns_per_tick;
    if (std::abs(ns) > static_cast<double>(kMostTime)) refuse(what, "at " + std::to_string(moment) + " ticks");
  }

 private:
  std::string source_;
};

void check_clock(const RankCapture& rank, const Checker& check) {
  const auto most = static_cast<double>(kMostTime);
  if (rank.ticks.ns_per_tick <= 0) check.refuse("ns_per_tick", number_text(rank.ticks.ns_per_tick));
  check.number("ns_per_tick", rank.ticks.ns_per_tick, 0, kSlowestTick);
  check.time("base_ns", rank.ticks.base_ns);
  check.ticks("begin", rank.begin, rank.ticks);
  check.ticks("end", rank.end, rank.ticks);
  check.time("reference_ns", rank.alignment.reference_ns);
  check.number("offset_ns", rank.alignment.offset_ns, -most, most);
  check.number("drift", rank.alignment.drift, -kMostDrift, kMostDrift);
  check.number("bound_ns", rank.alignment.bound_ns, 0, most);
  check.count("num_samples", rank.alignment.num_samples);
  check.number("clock_bound_ns", rank.device.clock_bound_ns, 0, most);
  if (rank.end < rank.begin) check.refuse("end", std::to_string(rank.end) + " ticks, before its begin");
}

void check_threads(const RankCapture& rank, const Checker& check) {
  for (const ThreadCapture& thread : rank.threads) {
    check.count("a thread's tid", thread.tid);
    check.unsigned_count("a thread's num_lost", thread.num_lost);
    for (const SpanRecord& record : thread.records) {
      for (const uint64_t moment : {record.begin, record.end}) {
        const double ns = static_cast<double>(static_cast<int64_t>(moment - rank.begin)) * rank.ticks.ns_per_tick;
        if (std::abs(ns) > kLongestCapture) check.refuse("a record", "at " + std::to_string(moment) + " ticks");
      }
      if (record.zone == Zone::kStep && record.a > kMostStepRows) check.refuse("a step's rows", std::to_string(record.a));
    }
  }
}

void check_counters(const RankCapture& rank, const Checker& check) {
  check.unsigned_count("num_lost", rank.counters.num_lost);
  check.unsigned_count("num_threads_left_out", rank.counters.num_threads_left_out);
  for (const CounterReading& reading : rank.counters.readings) {
    check.ticks("a reading", reading.begin, rank.ticks);
    check.ticks("a reading", reading.end, rank.ticks);
    for (std::size_t c = 0; c < kNumCounters; ++c) {
      if (reading.values[c] != kNotCounted) check.unsigned_count(kCounters[c].name, reading.values[c]);
    }
  }
}

void check_operators(const CaptureInfo& info, const Checker& check) {
  for (const OperatorFacts& facts : info.model.operators) {
    check.count("an operator's layers", facts.num_layers);
    check.count("an operator's rows_per_token", facts.rows_per_token);
    for (const SpanAmount& amount : {facts.flop, facts.bytes}) {
      for (const double value : {amount.fixed, amount.per_row, amount.per_b, amount.per_key})
        check.number("an operator's amount", value, -kMostAmount, kMostAmount);
    }
    check.number("row_keys_per_b", facts.row_keys_per_b, 0, kMostAmount);
  }
}

}  // namespace

void check_rank_numbers(const RankCapture& rank, const std::string& source) {
  const Checker check(source);
  check.count("pid", rank.pid);
  check.count("num_threads", rank.num_threads);
  check_clock(rank, check);
  check.number("span_cost_ns", rank.span_cost_ns, 0, kLongestCost);
  check.number("chained_span_cost_ns", rank.chained_span_cost_ns, 0, kLongestCost);
  check.count("peak_rss_bytes", rank.peak_rss_bytes, kMostBytes);
  check.count("num_preemptions", rank.num_preemptions);
  check_threads(rank, check);
  check_counters(rank, Checker(source + ": section counters"));
  const Checker memory(source + ": section memory"), stacks(source + ": section stacks");
  memory.unsigned_count("num_lost", rank.memory.num_lost);
  for (const MemorySample& sample : rank.memory.samples) memory.ticks("a sample", sample.ticks, rank.ticks);
  stacks.unsigned_count("num_lost", rank.stacks.num_lost);
  for (const StackSample& sample : rank.stacks.samples) stacks.ticks("a sample", sample.ticks, rank.ticks);
}

void check_info_numbers(const CaptureInfo& info, const std::string& source) {
  const Checker check(source);
  if (info.level < TraceLevel::kOff || info.level > TraceLevel::kThreads)
    check.refuse("level", std::to_string(static_cast<int>(info.level)));
  check.count("start_epoch_ns", info.start_epoch_ns, kMostTime);
  check.count("top_k", info.model.top_k);
  check.number("read_bytes_per_s", info.read_bytes_per_s, 0, kMostPerSecond);
  check.number("flops_per_s", info.flops_per_s, 0, kMostPerSecond);
  check.count("max_running_requests", info.max_running_requests);
  check.count("num_kv_blocks", info.num_kv_blocks);
  for (const std::vector<int64_t>& layer : info.expert_tokens) {
    for (const int64_t tokens : layer) check.count("expert_tokens", tokens);
  }
  for (const WorkerChangeFacts& change : info.worker_changes) check.count("a changed worker's rank", change.rank);
  check_operators(info, check);
}

void check_worker_changes(const CaptureInfo& info, const RankCapture& coordinator, const std::string& source) {
  const Checker check(source);
  for (const WorkerChangeFacts& change : info.worker_changes) check.ticks("a worker's change", change.ticks, coordinator.ticks);
}

}  // namespace ferry
