#include "runtime/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace ferry {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    for (const int64_t num_tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(num_tasks));
      pool.parallel_for(num_tasks, [&](int64_t i, int thread_idx) {
        ASSERT_GE(thread_idx, 0);
        ASSERT_LT(thread_idx, num_threads);
        ++runs[static_cast<std::size_t>(i)];
      });
      for (const std::atomic<int>& count : runs) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, RunsMoreTasksThanItHandsOutOneByOne) {
  ThreadPool pool(3);
  constexpr int64_t kManyTasks = 200'003;
  std::vector<std::atomic<int8_t>> runs(kManyTasks + 10);
  pool.parallel_for(kManyTasks, [&](int64_t i, int) { ++runs[static_cast<std::size_t>(i)]; });
  for (int64_t i = 0; i < std::ssize(runs); ++i) ASSERT_EQ(runs[static_cast<std::size_t>(i)], i < kManyTasks ? 1 : 0) << i;
}

TEST(ThreadPool, AThreadHasTheSameTasksInEveryCall) {
  constexpr int kNumThreads = 4;
  ThreadPool pool(kNumThreads);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> num_begun{0};
    pool.parallel_for(kNumThreads, [&](int64_t i, int thread_idx) {
      EXPECT_EQ(thread_idx, i);
      ++num_begun;
      num_begun.notify_all();
      for (int seen = num_begun; seen < kNumThreads; seen = num_begun) num_begun.wait(seen);  // nobody is free to help
    });
  }
}

TEST(ThreadPool, WhoHasNoTasksLeftTakesThoseOfOthers) {
  ThreadPool pool(2);
  std::atomic<int> num_done{0};
  pool.parallel_for(10, [&](int64_t i, int) {
    if (i != 0) {
      ++num_done;
      num_done.notify_all();
      return;
    }
    for (int seen = num_done; seen < 9; seen = num_done) num_done.wait(seen);  // the other thread does 1 to 4, too
  });
  EXPECT_EQ(num_done, 9);
}

/// More threads than cores, so that many come late, for calls that are over.
TEST(ThreadPool, ManyShortCallsRunEveryTaskOnce) {
  for (const int spin_us : {0, 5}) {
    ThreadPool pool(7, std::chrono::microseconds(spin_us));
    std::vector<std::atomic<int>> runs(40);
    for (int round = 0; round < 3000; ++round) {
      const int num_tasks = 2 + round * 7 % 39;
      pool.parallel_for(num_tasks, [&](int64_t i, int) { runs[static_cast<std::size_t>(i)].fetch_add(1); });
      for (int i = 0; i < 40; ++i) ASSERT_EQ(runs[static_cast<std::size_t>(i)].exchange(0), i < num_tasks ? 1 : 0) << round;
    }
  }
}

TEST(ThreadPool, ProgressMovesWithTasksAndCalls) {
  ThreadPool pool(2);
  const uint64_t before = pool.progress();
  std::atomic<int> num_begun{0}, num_seen{0};
  uint64_t at_2 = 0, at_3 = 0;
  pool.parallel_for(4, [&](int64_t i, int) {
    if (i > 1) {  // the other thread's, while the caller waits in the first task
      num_begun.wait(0);
      (i == 2 ? at_2 : at_3) = pool.progress();
      ++num_seen;
      num_seen.notify_all();
    } else if (i == 0) {
      num_begun = 1;
      num_begun.notify_all();
      for (int seen = num_seen; seen < 2; seen = num_seen) num_seen.wait(seen);
    }
  });
  EXPECT_NE(at_2, at_3);
  const uint64_t after = pool.progress();
  EXPECT_NE(before, after);
  pool.parallel_for(2, [](int64_t, int) {});
  EXPECT_NE(after, pool.progress());
}

TEST(ThreadPool, WritesOfTasksAreVisibleAfterTheCall) {
  ThreadPool pool(3);
  std::vector<int64_t> values(97);
  for (int64_t round = 0; round < 2000; ++round) {
    pool.parallel_for(97, [&](int64_t i, int) { values[static_cast<std::size_t>(i)] += i + round; });
  }
  for (int64_t i = 0; i < 97; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], 2000 * i + 1999 * 2000 / 2);
}

TEST(ThreadPool, SpinningThreadsDoTheSameWork) {
  ThreadPool pool(2, std::chrono::microseconds(20));
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 500; ++round) pool.parallel_for(10, [&](int64_t i, int) { sum += i; });
  EXPECT_EQ(sum.load(), 500 * 45);
}

/// Holds the pool's own threads up before they take a task.
class HoldUp final : public ThreadPoolObserver {
 public:
  void thread_started(int) override { is_pool_thread_ = true; }
  void share_begins() override {
    if (!is_pool_thread_) return;
    ++num_held_;
    num_held_.notify_all();
    go_.wait(false);
  }
  void share_ends(int64_t num_tasks) override { num_tasks_ += num_tasks; }
  void wait_until_held(int num_threads) {
    for (int seen = num_held_; seen < num_threads; seen = num_held_) num_held_.wait(seen);
  }
  void let_go() {
    go_ = true;
    go_.notify_all();
  }
  int64_t num_tasks() const { return num_tasks_; }

 private:
  static thread_local bool is_pool_thread_;
  std::atomic<bool> go_{false};
  std::atomic<int> num_held_{0};
  std::atomic<int64_t> num_tasks_{0};
};
thread_local bool HoldUp::is_pool_thread_ = false;

TEST(ThreadPool, ALateThreadKeepsNobodyWaiting) {
  HoldUp hold_up;
  ThreadPool pool(3, std::chrono::microseconds(0), &hold_up);
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 20; ++round) {
    pool.parallel_for(10, [&](int64_t i, int thread_idx) {
      EXPECT_EQ(thread_idx, 0) << "the others are held up";
      sum += i;
    });
    if (round == 0) hold_up.wait_until_held(2);  // about to work for this call, which is over
  }
  EXPECT_EQ(sum.load(), 20 * 45);
  EXPECT_EQ(hold_up.num_tasks(), 200);
  hold_up.let_go();
  pool.parallel_for(10, [&](int64_t i, int) { sum += i; });
  EXPECT_EQ(sum.load(), 21 * 45);
}

TEST(ThreadPool, RethrowsWhatATaskThrew) {
  ThreadPool pool(3);
  std::atomic<int> num_done{0};
  const auto run = [&] {
    parallel_for_throwing(pool, 100, [&](int64_t i, int) {
      if (i == 17) throw std::runtime_error("seventeen");
      ++num_done;
    });
  };
  EXPECT_THROW(run(), std::runtime_error);
  EXPECT_EQ(num_done, 99) << "the other tasks still run";
}

TEST(ThreadPoolDeathTest, RefusesNesting) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.parallel_for(2, [&](int64_t, int) { pool.parallel_for(2, [](int64_t, int) {}); });
      },
      "parallel_for called from inside a task");
}

}  // namespace
}  // namespace ferry
