#include "runtime/server/task_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/support/eventually.h"

namespace ferry {
namespace {

TEST(TaskPool, RunsEverythingItTook) {
  std::atomic<int> num_run = 0;
  int num_taken = 0;
  {
    TaskPool pool(3, 50);
    for (int i = 0; i < 1000; ++i) num_taken += pool.try_run([&] { ++num_run; }) ? 1 : 0;
  }
  EXPECT_EQ(num_run, num_taken);
  EXPECT_GE(num_taken, 50);
}

TEST(TaskPool, RefusesMoreThanMayWait) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  TaskPool pool(2, 5);
  std::promise<void> both_started;
  std::atomic<int> num_started = 0;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(pool.try_run([&, released] {
      if (++num_started == 2) both_started.set_value();
      released.wait();
    }));
  }
  ASSERT_EQ(both_started.get_future().wait_for(kTestLimit), std::future_status::ready);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(pool.try_run([released] { released.wait(); }));
  EXPECT_FALSE(pool.try_run([] {}));
  release.set_value();
}

TEST(TaskPool, AShareThatIsFullLeavesThreadsToOthers) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  TaskPool pool(2, 5);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.try_run({{.name = "a", .max_running = 1}}, [released] { released.wait(); }));
  std::promise<void> done;
  EXPECT_TRUE(pool.try_run({{.name = "b", .max_running = 1}}, [&] { done.set_value(); }));
  EXPECT_EQ(done.get_future().wait_for(kTestLimit), std::future_status::ready);
  release.set_value();
}

TEST(TaskPool, TakesNothingOnceItDrains) {
  TaskPool pool(2, 50);
  std::atomic<int> num_run = 0;
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(pool.try_run({{.name = "a", .max_running = 1}}, [&] { ++num_run; }));
  pool.drain();
  EXPECT_EQ(num_run, 50);
  EXPECT_FALSE(pool.try_run([] {}));
}

}  // namespace
}  // namespace ferry
