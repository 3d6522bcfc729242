#include "profiler/stacks/stack_sampler.h"

#include <gtest/gtest.h>

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "profiler/span.h"

namespace ferry {

// Functions of known names, which a symbol table must know though nobody exports them.
namespace {

int64_t thread_cpu_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Computes until the thread has run for that long, mostly in its caller. Callers differ in `factor`, since equal functions
/// become one.
template <uint64_t factor>
[[gnu::always_inline]] inline void compute(int64_t ns) {
  const int64_t end = thread_cpu_ns() + ns;
  uint64_t value = 1;
  while (thread_cpu_ns() < end) {
    for (int i = 0; i < 50'000; ++i) {
      value = value * factor + 1;
      asm volatile("" : "+r"(value));
    }
  }
}

[[gnu::noinline]] void work_on_experts(int64_t ns) { compute<6364136223846793005U>(ns); }
[[gnu::noinline]] void work_on_attention(int64_t ns) { compute<2862933555777941757U>(ns); }

/// Three fifths of the time in one function, two fifths in another: a second a turn, in which 199 samples leave little to
/// chance.
[[gnu::noinline]] void run_planted_step(int turns) {
  for (int i = 0; i < turns; ++i) {
    {
      const Span span(Zone::kGroupedGateUp);
      work_on_experts(600'000'000);
    }
    const Span span(Zone::kAttention);
    work_on_attention(400'000'000);
  }
  asm volatile("" ::: "memory");  // no tail call: this frame stays
}

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

/// The most periods that may be counted for a function though the other one ran: where cores are short a sample stands for
/// many, and those of the first one behind a change of function began before it.
struct Misplaced {
  double to_experts = 0, to_attention = 0;
};

Misplaced misplaced_periods(const StackCapture& stacks) {
  Misplaced most;
  std::optional<bool> were_experts;  // in the sample before
  for (const StackSample& sample : stacks.samples) {
    const bool are_experts = is_in(stacks, sample, "work_on_experts");
    if (!are_experts && !is_in(stacks, sample, "work_on_attention")) continue;
    if (were_experts && *were_experts != are_experts) (are_experts ? most.to_experts : most.to_attention) += sample.periods;
    were_experts = are_experts;
  }
  return most;
}

class StackSamplerTest : public testing::Test {
 protected:
  void SetUp() override { recorder().register_thread("test"); }
  void TearDown() override {
    if (recorder().is_capturing()) recorder().stop();
  }

  static StackCapture sample(const std::function<void()>& body) {
    recorder().start({.level = TraceLevel::kThreads});
    body();
    return recorder().stop().stacks;
  }

  static constexpr int kTries = 8;  // a busy machine may begin to sample late

  /// The first of some captures that has samples, or the last one.
  static StackCapture sample_some(const std::function<void()>& body) {
    StackCapture stacks = sample(body);
    for (int i = 1; i < kTries && stacks.samples.size() <= 2; ++i) {
      if (!stacks.absent.empty() && stacks.absent.find("over before") == std::string::npos) break;
      stacks = sample(body);
    }
    return stacks;
  }
};

#define SKIP_WHERE_ABSENT(stacks)                                                                                 \
  ASSERT_EQ((stacks).absent.find("over before"), std::string::npos) << "sampling did not begin in all that time"; \
  if (!(stacks).absent.empty()) GTEST_SKIP() << (stacks).absent

TEST_F(StackSamplerTest, ABusyFunctionHasItsShare) {
  constexpr int kTurns = 3;
  const StackCapture stacks = sample([] { run_planted_step(kTurns); });
  SKIP_WHERE_ABSENT(stacks);
  const auto all = static_cast<double>(count(stacks, [&](const auto& s) { return is_in(stacks, s, "run_planted_step"); }));
  const auto experts = static_cast<double>(count(stacks, [&](const auto& s) { return is_in(stacks, s, "work_on_experts"); }));
  ASSERT_GT(all, 400);
  RecordProperty("permille_of_experts", static_cast<int>(1000 * experts / all));
  const Misplaced misplaced = misplaced_periods(stacks);
  EXPECT_LE(experts / all, 0.6 + 0.02 + misplaced.to_experts / all);
  EXPECT_GE(experts / all, 0.6 - 0.02 - misplaced.to_attention / all);
  EXPECT_EQ(stacks.num_lost, 0U);
  for (const StackSample& s : stacks.samples) {
    if (is_in(stacks, s, "work_on_experts")) {
      EXPECT_TRUE(s.is_in_zone && s.zone == Zone::kGroupedGateUp);
    }
    if (is_in(stacks, s, "work_on_attention")) {
      EXPECT_TRUE(s.is_in_zone && s.zone == Zone::kAttention);
    }
  }
}

/// Of a thread's own time, since others may have the cores: the least of some starts.
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
TEST_F(StackSamplerTest, WhoStartsACaptureDoesNotPayForStacks) {
  const int64_t with_stacks = start_ns(TraceLevel::kThreads), without = start_ns(TraceLevel::kOperators);
  EXPECT_LT(with_stacks, 3 * without + 20'000) << "it was 160'000 beside 15'000";
}

TEST_F(StackSamplerTest, TimeIsWhatTheThreadRan) {
  double share = 0;
  for (int i = 0; i < kTries && std::abs(share - 1) > 0.1; ++i) {
    const int64_t before = thread_cpu_ns();
    const StackCapture stacks = sample([] { work_on_experts(1'000'000'000); });
    const auto ran = static_cast<double>(thread_cpu_ns() - before);
    SKIP_WHERE_ABSENT(stacks);
    const int64_t periods = count(stacks, [&](const auto& s) { return is_in(stacks, s, "work_on_experts"); });
    share = static_cast<double>(periods * stacks.period_ns) / ran;
  }
  EXPECT_NEAR(share, 1, 0.1);
}

TEST_F(StackSamplerTest, WhoSleepsHasNone) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> sleeper{0};
  std::thread other([&] {
    recorder().register_thread("sleeper");
    sleeper = own_stack().tid;
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  while (sleeper == 0) std::this_thread::yield();
  const StackCapture stacks = sample([] { work_on_experts(300'000'000); });
  stop = true;
  other.join();
  SKIP_WHERE_ABSENT(stacks);
  EXPECT_EQ(count(stacks, [&](const auto& s) { return s.tid == sleeper; }), 0);
  EXPECT_GT(count(stacks, [&](const auto& s) { return s.tid == own_stack().tid; }), 20);
}

TEST_F(StackSamplerTest, NothingIsSampledBelowItsLevel) {
  recorder().start({.level = TraceLevel::kOperators});
  work_on_experts(100'000'000);
  EXPECT_EQ(recorder().stop().stacks, StackCapture{});
}

TEST_F(StackSamplerTest, ThreadsComeAndGoMeanwhile) {
  const StackCapture stacks = sample([] {
    for (int i = 0; i < 10; ++i) {
      std::thread([] {
        recorder().register_thread("short");
        work_on_attention(60'000'000);
      }).join();
    }
  });
  SKIP_WHERE_ABSENT(stacks);
  EXPECT_GE(count(stacks, [&](const auto& s) { return is_in(stacks, s, "work_on_attention"); }), 20);
}

/// Deep enough to be cut, and back.
[[gnu::noinline]] int descend(int depth) {
  if (depth == 0) {
    work_on_experts(200'000'000);
    return 0;
  }
  const int below = descend(depth - 1);
  asm volatile("" ::: "memory");
  return below + 1;
}

TEST_F(StackSamplerTest, DeepStacksLoseTheirOuterEnd) {
  const StackCapture stacks = sample_some([] { descend(500); });
  SKIP_WHERE_ABSENT(stacks);
  std::size_t deepest = 0;
  for (const auto& stack : stacks.stacks) deepest = std::max(deepest, stack.size());
  EXPECT_EQ(deepest, kMaxStackDepth);
}

/// With a frame pointer that points anywhere, as in code that uses the register for its own.
[[gnu::noinline]] void work_without_frames(int64_t ns, uintptr_t anything) {
#if defined(__x86_64__)
  const int64_t end = thread_cpu_ns() + ns;
  while (thread_cpu_ns() < end) {
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
  work_on_experts(ns);
#endif
}

TEST_F(StackSamplerTest, CodeWithoutFramePointersIsSampled) {
  uintptr_t here = 0;
  for (const uintptr_t anything :
       {uintptr_t{0}, uintptr_t{8}, ~uintptr_t{0}, ~uintptr_t{0} - 7, reinterpret_cast<uintptr_t>(&here) | 1,
        reinterpret_cast<uintptr_t>(&here), own_stack().top - 8, own_stack().top}) {
    const StackCapture stacks = sample_some([&] { work_without_frames(200'000'000, anything); });
    SKIP_WHERE_ABSENT(stacks);
    EXPECT_GT(count(stacks, [](const auto&) { return true; }), 2);
  }
}

TEST_F(StackSamplerTest, ASignalFromElsewhereIsNoSample) {
  const StackCapture before = sample([] { work_on_experts(50'000'000); });
  SKIP_WHERE_ABSENT(before);  // there is no handler then, and a signal ends the process
  const StackCapture stacks = sample([] {
    for (int i = 0; i < 1000; ++i) raise(SIGPROF);
  });
  EXPECT_LT(stacks.samples.size(), 100U);
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
