#include "profiler/counters/thread_counters.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "profiler/counters/counter_recorder.h"
#include "profiler/counters/operator_counts.h"
#include "runtime/base/sanitizers.h"

namespace ferry {
namespace {

constexpr int kPages = 300;

/// Faults of the test itself beside those that it makes: fewer than it makes at once, but with AddressSanitizer those of its
/// shadow.
#ifdef FERRY_ADDRESS_SANITIZER
constexpr uint64_t kOthers = 100'000;
#else
constexpr uint64_t kOthers = 50;
#endif

/// Touches so many pages that were never touched.
void fault(int num_pages) {
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t bytes = static_cast<std::size_t>(num_pages) * page_bytes;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  madvise(data, bytes, MADV_NOHUGEPAGE);
  for (int p = 0; p < num_pages; ++p) static_cast<volatile char*>(data)[static_cast<std::size_t>(p) * page_bytes] = 1;
  munmap(data, bytes);
}

void sleep_often(int times) {
  for (int i = 0; i < times; ++i) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

CounterSource source_of(const std::vector<CounterSource>& sources, Counter counter) {
  for (const CounterSource& source : sources) {
    if (source.counter == counter) return source;
  }
  ADD_FAILURE() << "nothing is said of counter " << static_cast<int>(counter);
  return {};
}

TEST(ThreadCounters, CountsEachPageThatIsTouchedFirst) {
  for (const auto perf : {ThreadCounters::Perf::kTried, ThreadCounters::Perf::kLeftOut}) {
    ThreadCounters counters(gettid(), 5, perf);
    const bool by_perf = source_of(counters.sources(), Counter::kMinorFaults).source == "perf";
    fault(kPages);
    const CounterReading reading = counters.take(9);
    EXPECT_EQ(reading.begin, 5U);
    EXPECT_EQ(reading.end, 9U);
    EXPECT_EQ(reading.tid, gettid());
    EXPECT_FALSE(reading.is_scaled);
    EXPECT_GE(reading[Counter::kMinorFaults], uint64_t{kPages});
    EXPECT_LE(reading[Counter::kMinorFaults], uint64_t{kPages} + kOthers) << (by_perf ? "perf" : "stat");
    const CounterReading next = counters.take(11);
    EXPECT_EQ(next.begin, 9U) << "from the last one on";
    EXPECT_LE(next[Counter::kMinorFaults], kOthers);
  }
}

TEST(ThreadCounters, CountsHowOftenAThreadGaveUpItsCore) {
  for (const auto perf : {ThreadCounters::Perf::kTried, ThreadCounters::Perf::kLeftOut}) {
    ThreadCounters counters(gettid(), 0, perf);
    if (source_of(counters.sources(), Counter::kContextSwitches).source.empty()) GTEST_SKIP() << "no schedstat";
    sleep_often(50);
    const uint64_t switches = counters.take(1)[Counter::kContextSwitches];
    EXPECT_GE(switches, 50U);
    EXPECT_LE(switches, 500U) << "a few more where others want the core";
  }
}

TEST(ThreadCounters, CountsOtherThreads) {
  std::atomic<int64_t> tid{0};
  std::atomic<int> stage{0};
  std::thread other([&] {
    tid = gettid();
    while (stage < 1) std::this_thread::yield();
    fault(kPages);
    stage = 2;
    while (stage < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (tid == 0) std::this_thread::yield();
  ThreadCounters counters(tid, 0);
  stage = 1;
  while (stage < 2) std::this_thread::yield();
  const CounterReading reading = counters.take(1);
  stage = 3;
  other.join();
  EXPECT_GE(reading[Counter::kMinorFaults], uint64_t{kPages});
  EXPECT_LE(reading[Counter::kMinorFaults], uint64_t{kPages} + kOthers);
  counters.take(2);
  const uint64_t later = counters.take(3)[Counter::kMinorFaults];
  EXPECT_TRUE(later == 0 || later == kNotCounted) << later << " of a thread that is gone";
}

TEST(ThreadCounters, SaysOfEachCounterWhereItComesFromOrWhyItIsAbsent) {
  const ThreadCounters counters(gettid(), 0);
  for (std::size_t c = 0; c <= static_cast<std::size_t>(Counter::kRunQueueDelay); ++c) {
    const CounterSource source = source_of(counters.sources(), static_cast<Counter>(c));
    EXPECT_NE(source.source.empty(), source.absent.empty()) << kCounters[c].name << " has a source or a reason";
  }
  EXPECT_EQ(perf_refusal(ENOENT), "no PMU (ENOENT)");
  EXPECT_EQ(perf_refusal(EPERM).substr(0, 18), "not allowed (EPERM");
}

TEST(PerfGroups, EventsThatAreUnknownAreAbsentAndTheRestCounts) {
  const PerfEvent events[] = {{Counter::kCycles, PERF_TYPE_SOFTWARE, 0xffff},
                              {Counter::kMinorFaults, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN}};
  const PerfGroup group(events, 0);
  ASSERT_EQ(group.sources().size(), 2U);
  EXPECT_EQ(group.sources()[0].source, "");
  EXPECT_NE(group.sources()[0].absent, "");
  if (!group.is_open()) GTEST_SKIP() << group.sources()[1].absent;
  const PerfReading before = group.read();
  fault(kPages);
  const PerfReading after = group.read();
  bool is_scaled = false;
  const CounterValues counted = count_between(before, after, is_scaled);
  EXPECT_GE(counted[static_cast<std::size_t>(Counter::kMinorFaults)], uint64_t{kPages});
  EXPECT_LE(counted[static_cast<std::size_t>(Counter::kMinorFaults)], uint64_t{kPages} + kOthers);
  EXPECT_EQ(counted[static_cast<std::size_t>(Counter::kCycles)], kNotCounted);
  EXPECT_FALSE(is_scaled);
}

PerfReading standing(uint64_t cycles, uint64_t enabled_ns, uint64_t running_ns) {
  PerfReading reading{.enabled_ns = enabled_ns, .running_ns = running_ns};
  reading.values.fill(kNotCounted);
  reading.values[0] = cycles;
  return reading;
}

TEST(PerfGroups, CountersThatTookTurnsAreExtrapolatedAndSaySo) {
  bool is_scaled = false;
  EXPECT_EQ(count_between(standing(100, 1000, 500), standing(400, 2000, 750), is_scaled)[0], 1200U) << "a quarter of the time";
  EXPECT_TRUE(is_scaled);
  is_scaled = false;
  EXPECT_EQ(count_between(standing(100, 1000, 500), standing(400, 2000, 1500), is_scaled)[0], 300U);
  EXPECT_FALSE(is_scaled) << "it counted all the time since";
  EXPECT_EQ(count_between(standing(100, 1000, 500), standing(100, 2000, 500), is_scaled)[0], kNotCounted) << "it had no turn";
}

TEST(PerfPages, WhatThePageDoesNotAllowIsNotRead) {
  perf_event_mmap_page page{};
  uint64_t value = 0, enabled = 0, running = 0;
  page.offset = 5;
  EXPECT_FALSE(read_perf_page(page, value, enabled, running)) << "no counter has it at the moment";
  page.index = 1;
  EXPECT_FALSE(read_perf_page(page, value, enabled, running)) << "programs may not read it";
  page.cap_user_rdpmc = 1;
  page.pmc_width = 0;
  EXPECT_FALSE(read_perf_page(page, value, enabled, running));
  page.pmc_width = 65;
  EXPECT_FALSE(read_perf_page(page, value, enabled, running));
}

TEST(OperatorCounts, HaveWhatHappenedInEach) {
  OperatorCounts counts;
  if (!counts.is_open() || counts.tells_operators_apart()) GTEST_SKIP() << "the kernel counts no faults for this test";
  fault(700);
  counts.begin(Zone::kQProj);
  fault(300);
  counts.end();
  counts.begin(Zone::kOProj);  // of the same part
  fault(500);
  counts.end();
  counts.begin(Zone::kRouter);
  fault(1100);
  counts.end();
  counts.begin(Zone::kWaitCombine);  // no operator
  fault(1900);
  counts.end();
  counts.begin(Zone::kQProj);
  fault(100);
  counts.begin(Zone::kWaitCombine);
  const std::vector<CounterReading>& taken = counts.take(3, 10, 20);
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].zone, Zone::kQProj);
  EXPECT_TRUE(taken[0].is_part);
  EXPECT_GE(taken[0][Counter::kMinorFaults], 900U);
  EXPECT_LE(taken[0][Counter::kMinorFaults], 900 + kOthers);
  EXPECT_EQ(taken[0].begin, 10U);
  EXPECT_EQ(taken[0].end, 20U);
  EXPECT_EQ(taken[1].zone, Zone::kRouter);
  EXPECT_GE(taken[1][Counter::kMinorFaults], 1100U);
  EXPECT_LE(taken[1][Counter::kMinorFaults], 1100 + kOthers);
  EXPECT_TRUE(counts.take(3, 20, 30).empty()) << "handed over once";
}

void open_all(CounterRecorder& recorder, uint64_t now) {
  while (recorder.open_next(now)) {
  }
}

TEST(CounterRecorder, KeepsWhatThreadsDidUntilTheEnd) {
  CounterRecorder recorder;
  EXPECT_FALSE(recorder.is_counting());
  recorder.read_threads(1, 1);  // nothing happens
  const int64_t own[] = {gettid()};
  recorder.begin(own, 100);
  EXPECT_FALSE(recorder.is_counting()) << "nothing is open yet";
  recorder.read_threads(3, 5);  // nothing happens
  open_all(recorder, 10);
  EXPECT_TRUE(recorder.is_counting());
  fault(kPages);
  recorder.read_threads(4, 20);
  fault(2 * kPages);
  const CounterCapture capture = recorder.end(30);
  EXPECT_FALSE(recorder.is_counting());
  uint64_t faults = 0;
  for (const CounterReading& reading : capture.readings) {
    if (reading.tid == gettid()) faults += reading[Counter::kMinorFaults];
  }
  EXPECT_GE(faults, uint64_t{3 * kPages});
  EXPECT_LE(faults, uint64_t{3 * kPages} + kOthers);
  ASSERT_FALSE(capture.readings.empty());
  EXPECT_EQ(capture.readings[0].step, 4U);
  EXPECT_EQ(capture.readings[0].begin, 10U);
  EXPECT_GE(capture.sources.size(), kNumToldByAll) << "of each counter something is said";
  EXPECT_EQ(capture.num_lost, 0U);
  EXPECT_EQ(recorder.end(40), CounterCapture{});
}

TEST(CounterRecorder, CountsReadingsForWhichThereIsNoRoom) {
  CounterRecorder recorder;
  const int64_t own[] = {gettid()};
  recorder.begin(own, 1);
  open_all(recorder, 10);
  CounterReading sum;
  sum.values.fill(3);
  const std::vector<CounterReading> sums(5, sum);
  recorder.add(sums, 7);
  const CounterCapture capture = recorder.end(30);
  ASSERT_EQ(capture.readings.size(), 1U);
  EXPECT_EQ(capture.readings[0].step, 7U);
  EXPECT_GE(capture.num_lost, 5U) << "four, and the last reading of the thread";
}

TEST(CounterRecorder, ThreadsThatEndAreReadALastTime) {
  CounterRecorder recorder;
  recorder.begin({}, 100);
  open_all(recorder, 10);
  recorder.add_thread(gettid(), 11);
  fault(kPages);
  recorder.retire_thread(gettid(), 12);
  fault(kPages);
  std::vector<CounterReading> own;
  for (const CounterReading& reading : recorder.end(30).readings) {
    if (reading.tid == gettid()) own.push_back(reading);
  }
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(own[0].end, 12U);
  EXPECT_LE(own[0][Counter::kMinorFaults], uint64_t{kPages} + kOthers);
}

TEST(CounterRecorder, ThreadsThatEndBeforeTheirCountersAreOpenAreNotCounted) {
  CounterRecorder recorder;
  const int64_t own[] = {gettid()};
  recorder.begin(own, 100);
  recorder.retire_thread(gettid(), 5);
  open_all(recorder, 10);
  fault(kPages);
  for (const CounterReading& reading : recorder.end(30).readings) EXPECT_NE(reading.tid, gettid());
}

TEST(CounterRecorder, ACaptureThatEndsBeforeAnythingIsOpenSaysSo) {
  CounterRecorder recorder;
  const int64_t own[] = {gettid()};
  recorder.begin(own, 100);
  const CounterCapture capture = recorder.end(30);
  EXPECT_TRUE(capture.readings.empty());
  ASSERT_EQ(capture.sources.size(), kNumToldByAll);
  for (const CounterSource& source : capture.sources) EXPECT_NE(source.absent.find("over before"), std::string::npos);
  EXPECT_FALSE(recorder.open_next(40)) << "there is nothing to open any more";
}

TEST(CounterRecorder, WhatFewMachinesTellOfIsNotMissed) {
  CounterRecorder recorder;
  recorder.begin({}, 100);
  open_all(recorder, 10);
  for (const CounterSource& source : recorder.end(30).sources)
    EXPECT_TRUE(static_cast<std::size_t>(source.counter) < kNumToldByAll ||
                source.absent.find("over before") == std::string::npos);
}

TEST(CounterRecorder, CountersOfACaptureThatHasEndedAreNotTheNextOnes) {
  CounterRecorder recorder;
  std::atomic<bool> ends = false;
  const int64_t own[] = {gettid()};
  std::thread opener([&] {
    while (!ends) recorder.open_next(1);
  });
  for (int capture = 0; capture < 200; ++capture) {
    recorder.begin(own, 100);
    std::this_thread::yield();
    const CounterCapture ended = recorder.end(2);
    std::size_t num_of_thread = 0;
    for (const CounterReading& reading : ended.readings) num_of_thread += reading.tid == gettid() ? 1 : 0;
    EXPECT_LE(num_of_thread, 1U) << "its counters were opened twice";
    EXPECT_GE(ended.sources.size(), kNumToldByAll);
  }
  ends = true;
  opener.join();
}

}  // namespace
}  // namespace ferry
