#include "profiler/stacks/stack_sampler.h"

#include <gtest/gtest.h>

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "profiler/span.h"
#include "tests/support/eventually.h"

namespace ferry {

// Functions of known names, which a symbol table must know though nobody exports them.
namespace {

/// Whether the calling thread was sampled `times` more often than when this was made. How long that takes is up to the system,
/// which interrupts a thread that has run for a period. After kTestLimit it is true, and what was sampled says that it is too
/// little.
class SampledAgain {
 public:
  SampledAgain(const StackRing& ring, uint64_t times) : ring_(ring), enough_(ring.num_written() + times) {}
  bool operator()() const { return ring_.num_written() >= enough_ || std::chrono::steady_clock::now() > end_; }

 private:
  const StackRing& ring_;
  const uint64_t enough_;
  const std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::now() + kTestLimit;
};

int64_t thread_cpu_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// When the calling thread has run for that long.
std::function<bool()> after_running(int64_t ns) {
  return [end = thread_cpu_ns() + ns] { return thread_cpu_ns() >= end; };
}

/// Computes until `is_enough`, mostly in its caller. Callers differ in `factor`, since equal functions become one.
template <uint64_t factor>
[[gnu::always_inline]] inline void compute(const std::function<bool()>& is_enough) {
  uint64_t value = 1;
  while (!is_enough()) {
    for (int i = 0; i < 50'000; ++i) {
      value = value * factor + 1;
      asm volatile("" : "+r"(value));
    }
  }
}

[[gnu::noinline]] void work_on_experts(const std::function<bool()>& is_enough) { compute<6364136223846793005U>(is_enough); }
[[gnu::noinline]] void work_on_attention(const std::function<bool()>& is_enough) { compute<2862933555777941757U>(is_enough); }

bool is_in(const StackCapture& stacks, const StackSample& sample, const std::string& function) {
  for (const uint32_t frame : stacks.stacks.at(sample.stack)) {
    if (stacks.frames.at(frame).function.find(function) != std::string::npos) return true;
  }
  return false;
}

/// Periods of samples that `is_counted`.
template <class IsCounted>
int64_t count(const StackCapture& stacks, IsCounted&& is_counted) {
  int64_t periods = 0;
  for (const StackSample& sample : stacks.samples) periods += is_counted(sample) ? sample.periods : 0;
  return periods;
}

int64_t count_in(const StackCapture& stacks, const std::string& function) {
  return count(stacks, [&](const StackSample& sample) { return is_in(stacks, sample, function); });
}

/// What a sampler finds of a thread that runs `body`, which is given the ring that its samples come to. Where stacks cannot be
/// sampled `body` does not run.
StackCapture sample_thread(const std::function<void(const StackRing&)>& body) {
  StackCapture stacks;
  std::thread([&] {
    recorder().register_thread("sampled");
    ThreadStack own = own_stack();
    StackSampler sampler;
    sampler.add(own);
    if (own.ring != nullptr) body(*own.ring);
    stacks = sampler.finish();
    own.slot->store(nullptr);
  }).join();
  return stacks;
}

#define SKIP_WHERE_ABSENT(stacks) \
  if (!(stacks).absent.empty()) GTEST_SKIP() << (stacks).absent

class StackSamplerTest : public testing::Test {
 protected:
  void SetUp() override { recorder().set_idle_level(TraceLevel::kOperators); }  // so that spans are open
  void TearDown() override {
    recorder().discard();
    recorder().set_idle_level(TraceLevel::kOff);
  }
};

constexpr uint64_t kFew = 5;

[[gnu::noinline]] void run_planted_step(const StackRing& ring) {
  {
    const Span span(Zone::kGroupedGateUp);
    work_on_experts(SampledAgain(ring, kFew));
  }
  const Span span(Zone::kAttention);
  work_on_attention(SampledAgain(ring, kFew));
  asm volatile("" ::: "memory");  // no tail call: this frame stays
}

TEST_F(StackSamplerTest, SamplesAreOfTheFunctionAndTheSpanThatRan) {
  const StackCapture stacks = sample_thread(run_planted_step);
  SKIP_WHERE_ABSENT(stacks);
  std::vector<bool> are_experts;  // of the samples of either
  for (const StackSample& s : stacks.samples) {
    const bool is_of_experts = is_in(stacks, s, "work_on_experts");
    if (!is_of_experts && !is_in(stacks, s, "work_on_attention")) continue;
    EXPECT_TRUE(is_in(stacks, s, "run_planted_step"));
    EXPECT_TRUE(s.is_in_zone);
    EXPECT_EQ(s.zone, is_of_experts ? Zone::kGroupedGateUp : Zone::kAttention);
    are_experts.push_back(is_of_experts);
  }
  EXPECT_GE(std::ranges::count(are_experts, true), static_cast<int64_t>(kFew) - 1) << "one may come right before";
  EXPECT_GE(std::ranges::count(are_experts, false), static_cast<int64_t>(kFew) - 1);
  EXPECT_TRUE(std::ranges::is_sorted(are_experts, std::greater<>())) << "experts came first";
  EXPECT_EQ(stacks.num_lost, 0U);
}

TEST_F(StackSamplerTest, APeriodIsTimeThatTheThreadRan) {
  int64_t ran_ns = 0;
  const StackCapture stacks = sample_thread([&](const StackRing& ring) {
    const int64_t before = thread_cpu_ns();
    work_on_experts(SampledAgain(ring, 4 * kFew));
    ran_ns = thread_cpu_ns() - before;
  });
  SKIP_WHERE_ABSENT(stacks);
  EXPECT_EQ(stacks.period_ns, StackSampler::kPeriodNs);
  const int64_t periods = count_in(stacks, "work_on_experts");
  EXPECT_GE(periods, static_cast<int64_t>(4 * kFew) - 1);
  EXPECT_LE((periods - 2) * stacks.period_ns, ran_ns) << "the sampler began a moment before, and no period comes early";
}

/// Threads whose samples a test writes, so that what is made of them is known.
class MadeSamples : public testing::Test {
 protected:
  void SetUp() override {
    sampler_.add(made_);
    if (made_.ring == nullptr) GTEST_SKIP() << sampler_.finish().absent;
  }
  /// A sample in `function` and in no known caller.
  void put(void (*function)(const std::function<bool()>&), uintptr_t offset, Zone zone, uint16_t periods) {
    RawStack* stack = made_.ring->next();
    if (stack == nullptr) return;
    *stack = {.ticks = ++ticks_, .zone = zone, .is_in_zone = true, .periods = periods, .words = {}};
    stack->pc = reinterpret_cast<uintptr_t>(function) + offset;
    made_.ring->publish();
  }

  uint64_t ticks_ = 0;
  std::atomic<StackRing*> slot_{nullptr};
  ThreadStack made_{.tid = gettid(), .top = own_stack().top, .slot = &slot_, .ring = nullptr};
  StackSampler sampler_;
};

TEST_F(MadeSamples, AFunctionsShareIsThatOfItsPeriods) {
  for (int i = 0; i < 3; ++i) {
    put(work_on_experts, 1, Zone::kGroupedGateUp, 1);
    put(work_on_attention, 1, Zone::kAttention, 4);
    put(work_on_experts, 2, Zone::kGroupedDown, 5);
  }
  const StackCapture stacks = sampler_.finish();
  EXPECT_EQ(stacks.absent, "");
  ASSERT_EQ(stacks.samples.size(), 9U);
  EXPECT_EQ(count_in(stacks, "work_on_experts"), 18);
  EXPECT_EQ(count_in(stacks, "work_on_attention"), 12);
  EXPECT_EQ(stacks.frames.size(), 2U) << "addresses of one function are one";
  EXPECT_EQ(stacks.stacks.size(), 2U);
  EXPECT_EQ(stacks.samples[2].zone, Zone::kGroupedDown);
  EXPECT_TRUE(stacks.samples[2].is_in_zone);
  for (std::size_t i = 0; i < stacks.samples.size(); ++i) {
    EXPECT_EQ(stacks.samples[i].ticks, i + 1);
    EXPECT_EQ(stacks.samples[i].tid, gettid());
  }
}

TEST_F(MadeSamples, WhatFoundNoRoomIsToldAndOldOnesAreNotCounted) {
  for (std::size_t i = 0; i < StackRing::kCapacity + 3; ++i) put(work_on_experts, 1, Zone::kGroupedGateUp, 1);
  sampler_.drain();
  put(work_on_experts, 1, Zone::kGroupedGateUp, 1);
  const StackCapture stacks = sampler_.finish();
  EXPECT_EQ(stacks.samples.size(), StackRing::kCapacity + 1);
  EXPECT_EQ(stacks.num_lost, 3U);
  put(work_on_experts, 1, Zone::kGroupedGateUp, 1);  // when nobody samples it
  StackSampler next;
  next.add(made_);
  EXPECT_TRUE(next.finish().samples.empty());
}

/// A period is of the time that a thread runs: one that sleeps does not reach the end of one.
TEST_F(StackSamplerTest, WhoSleepsHasNone) {
  std::promise<ThreadStack*> is_there;
  std::promise<void> may_leave;
  std::thread other([&] {
    ThreadStack own = own_stack();
    is_there.set_value(&own);
    may_leave.get_future().wait();
    own.slot->store(nullptr);
  });
  ThreadStack* const sleeper = is_there.get_future().get();
  StackCapture stacks;
  std::thread([&] {
    ThreadStack own = own_stack();
    StackSampler sampler;
    sampler.add(*sleeper);
    sampler.add(own);
    if (own.ring != nullptr) work_on_experts(SampledAgain(*own.ring, 4 * kFew));
    stacks = sampler.finish();
    own.slot->store(nullptr);
  }).join();
  const int64_t tid = sleeper->tid;
  may_leave.set_value();
  other.join();
  SKIP_WHERE_ABSENT(stacks);
  EXPECT_EQ(count(stacks, [&](const auto& s) { return s.tid == tid; }), 0);
  EXPECT_GE(count(stacks, [&](const auto& s) { return s.tid != tid; }), static_cast<int64_t>(4 * kFew));
}

TEST_F(StackSamplerTest, NothingIsSampledBelowItsLevel) {
  recorder().start({.level = TraceLevel::kOperators});
  eventually([] { return recorder().counters().is_counting(); }, "the recorder's thread to be beyond the stacks");
  EXPECT_FALSE(recorder().is_sampling());
  EXPECT_EQ(recorder().stop().stacks, StackCapture{});
}

/// Each runs until it was sampled.
TEST_F(StackSamplerTest, ThreadsComeAndGoMeanwhile) {
  if (const std::string absent = StackSampler().finish().absent; !absent.empty()) GTEST_SKIP() << absent;
  recorder().start({.level = TraceLevel::kThreads});
  eventually([] { return recorder().is_sampling(); }, "the recorder's thread to sample stacks");
  constexpr int kThreads = 5;
  for (int i = 0; i < kThreads; ++i) {
    std::thread([] {
      recorder().register_thread("short");
      const StackRing* ring = own_stack().slot->load();
      ASSERT_NE(ring, nullptr);
      work_on_attention(SampledAgain(*ring, kFew));
    }).join();
  }
  const StackCapture stacks = recorder().stop().stacks;
  ASSERT_EQ(stacks.absent, "");
  std::set<int32_t> tids;
  for (const StackSample& sample : stacks.samples) {
    if (is_in(stacks, sample, "work_on_attention")) tids.insert(sample.tid);
  }
  EXPECT_EQ(tids.size(), static_cast<std::size_t>(kThreads)) << stacks.samples.size() << " samples";
}

[[gnu::noinline]] void be_sampled(const StackRing& ring) { work_on_experts(SampledAgain(ring, kFew)); }

/// Calls itself so often that the stack is cut. Its frames are small in every build, because a sample holds
/// RawStack::kMaxBytes of the stack and must hold kMaxStackDepth of them.
[[gnu::noinline]] int descend(int depth, const StackRing& ring) {
  if (depth == 0) {
    be_sampled(ring);
    return 0;
  }
  const int below = descend(depth - 1, ring);
  asm volatile("" ::: "memory");
  return below + 1;
}

TEST_F(StackSamplerTest, DeepStacksLoseTheirOuterEnd) {
  const StackCapture stacks = sample_thread([](const StackRing& ring) { descend(500, ring); });
  SKIP_WHERE_ABSENT(stacks);
  std::size_t deepest = 0;
  for (const auto& stack : stacks.stacks) deepest = std::max(deepest, stack.size());
  EXPECT_EQ(deepest, kMaxStackDepth) << "in " << stacks.samples.size() << " samples";
}

/// With a frame pointer that points anywhere, as in code that uses the register for its own.
[[gnu::noinline]] void work_without_frames(const SampledAgain& is_enough, uintptr_t anything) {
#if defined(__x86_64__)
  while (!is_enough()) {
    asm volatile(
        "push %%rbp\n\t"
        "mov %0, %%rbp\n\t"
        "mov $100000, %%ecx\n"
        "1: dec %%ecx\n\t"
        "jnz 1b\n\t"
        "pop %%rbp"
        :
        : "r"(anything)
        : "ecx", "memory", "cc");
  }
#else
  static_cast<void>(anything);
  work_on_experts(is_enough);
#endif
}

TEST_F(StackSamplerTest, CodeWithoutFramePointersIsSampled) {
  uintptr_t here = 0;
  for (const uintptr_t anything :
       {uintptr_t{0}, uintptr_t{8}, ~uintptr_t{0}, ~uintptr_t{0} - 7, reinterpret_cast<uintptr_t>(&here) | 1,
        reinterpret_cast<uintptr_t>(&here), own_stack().top - 8, own_stack().top}) {
    const StackCapture stacks =
        sample_thread([&](const StackRing& ring) { work_without_frames(SampledAgain(ring, kFew), anything); });
    SKIP_WHERE_ABSENT(stacks);
    EXPECT_GE(stacks.samples.size(), kFew) << anything;
  }
}

TEST_F(StackSamplerTest, ASignalFromElsewhereIsNoSample) {
  if (const std::string absent = StackSampler().finish().absent; !absent.empty()) GTEST_SKIP() << absent;  // or it ends us
  std::thread([] {  // one that has a ring and no timer
    ThreadStack own = own_stack();
    own.ring = std::make_unique<StackRing>(own.top);
    own.slot->store(own.ring.get());
    for (int i = 0; i < 10; ++i) raise(SIGPROF);
    own.slot->store(nullptr);
    EXPECT_EQ(own.ring->num_written(), 0U);
    EXPECT_EQ(own.ring->num_lost(), 0U);
  })
      .join();
}

/// How near shares and times come to what the system says that a thread ran. A core that others want makes them coarse.
TEST(StackSamplerOnHost, ABusyFunctionHasItsShare) {
  recorder().register_thread("test");
  recorder().start({.level = TraceLevel::kThreads});
  const auto has_this_thread = [] {
    if (!recorder().is_sampling()) return false;
    work_on_experts(after_running(50'000'000));
    return true;
  };
  eventually(has_this_thread, "the recorder's thread to sample stacks");
  const int64_t before = thread_cpu_ns();
  for (int i = 0; i < 3; ++i) {
    work_on_attention(after_running(600'000'000));
    work_on_experts(after_running(400'000'000));
  }
  const auto ran = static_cast<double>(thread_cpu_ns() - before + 50'000'000);
  const StackCapture stacks = recorder().stop().stacks;
  SKIP_WHERE_ABSENT(stacks);
  const auto attention = static_cast<double>(count_in(stacks, "work_on_attention"));
  const auto experts = static_cast<double>(count_in(stacks, "work_on_experts"));
  EXPECT_NEAR(attention / (attention + experts), 0.6, 0.03);
  EXPECT_NEAR((attention + experts) * static_cast<double>(stacks.period_ns) / ran, 1, 0.1);
  EXPECT_EQ(stacks.num_lost, 0U);
}

/// Of a thread's own time: the least of some starts.
int64_t start_ns(TraceLevel level) {
  int64_t least = INT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const int64_t before = thread_cpu_ns();
    recorder().start({.level = level});
    least = std::min(least, thread_cpu_ns() - before);
    recorder().stop();
  }
  return least;
}

/// Reading what the process has mapped is left to the recorder's thread.
TEST(StackSamplerOnHost, WhoStartsACaptureDoesNotPayForStacks) {
  recorder().register_thread("test");
  const int64_t with_stacks = start_ns(TraceLevel::kThreads), without = start_ns(TraceLevel::kOperators);
  EXPECT_LT(with_stacks, 3 * without + 20'000) << "it was 160'000 beside 15'000";
}

TEST(StackRingTest, WhatFindsNoRoomIsCounted) {
  StackRing ring(0);
  for (std::size_t i = 0; i < StackRing::kCapacity; ++i) {
    ASSERT_NE(ring.next(), nullptr);
    ring.next()->ticks = i;
    ring.publish();
  }
  EXPECT_EQ(ring.next(), nullptr);
  EXPECT_EQ(ring.num_lost(), 1U);
  uint64_t expected = 0;
  ring.drain([&](const RawStack& stack) { EXPECT_EQ(stack.ticks, expected++); });
  EXPECT_EQ(expected, StackRing::kCapacity);
  EXPECT_NE(ring.next(), nullptr);
}

}  // namespace
}  // namespace ferry
