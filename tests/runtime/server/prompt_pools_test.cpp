#include "runtime/server/prompt_pools.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <string>

#include "runtime/coordinator.h"
#include "runtime/options/server_limits.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

/// Pools of a server that may fetch pictures, and steps that last until the test lets them end.
class PromptPoolsTest : public ::testing::Test {
 protected:
  ~PromptPoolsTest() override { release_.set_value(); }

  static EngineLoad load() {
    EngineLoad load;
    load.max_running_requests = 3;
    load.max_waiting_requests = 200;
    return load;
  }
  static ServerLimits limits() {
    ServerLimits limits;
    limits.picture_hosts = {"a.example", "b.example"};
    return limits;
  }
  bool hold(const PromptStep& step) {
    return pools_.try_run(step, [this, work = step.work] {
      ++num_started(work);
      released_.wait();
    });
  }
  std::atomic<int>& num_started(PromptWork work) { return num_started_[static_cast<std::size_t>(work)]; }
  /// Begins as many steps as run at once, and checks that there are `count` of them.
  void fill(const PromptStep& step, int count) {
    for (int i = 0; i < 2 * count; ++i) ASSERT_TRUE(hold(step)) << i;
    eventually([&] { return num_started(step.work) == count; }, "threads to have something to do");
  }
  /// Returns true if a step ends while those that are held do not.
  bool runs(const PromptStep& step) {
    const auto done = std::make_shared<std::promise<void>>();
    if (!pools_.try_run(step, [done] { done->set_value(); })) return false;
    return done->get_future().wait_for(kTestLimit) == std::future_status::ready;
  }

  std::promise<void> release_;
  const std::shared_future<void> released_ = release_.get_future().share();
  std::array<std::atomic<int>, 4> num_started_{};  // by the kind of work
  PromptPools pools_{load(), limits()};
};

TEST_F(PromptPoolsTest, OfOneKeyAsManyWaitAsRequestsMayRunAndWait) {
  for (const PromptWork work : {PromptWork::kText, PromptWork::kGrammar, PromptWork::kMedia}) {
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(hold({.work = work, .key = "key 1"}));
    eventually([&] { return num_started(work) == 2; }, "both threads to have something to do");
    for (int i = 0; i < 203; ++i) EXPECT_TRUE(hold({.work = work, .key = "key 1"})) << i;
    EXPECT_FALSE(hold({.work = work, .key = "key 1"}));
    EXPECT_TRUE(hold({.work = work, .key = "key 2"})) << "another key has a share of the queue";
  }
  EXPECT_STREQ(pools_.refusal().what(),
               "too many prompts wait to be made; allowed: 203 of one key, --max-seqs and --max-waiting together");
}

TEST_F(PromptPoolsTest, OneKeyLeavesThreadsToOthers) {
  for (const PromptWork work : {PromptWork::kGrammar, PromptWork::kMedia}) {
    fill({.work = work, .key = "key 1"}, 2);
    EXPECT_TRUE(runs({.work = work, .key = "key 2"}));
    EXPECT_TRUE(runs({.work = work})) << "without a key";
  }
}

TEST_F(PromptPoolsTest, OneHostLeavesThreadsToOthers) {
  const PromptStep at_a{.work = PromptWork::kFetch, .hosts = {"a.example"}, .key = "key 1"};
  fill(at_a, 3);
  EXPECT_TRUE(runs({.work = PromptWork::kFetch, .hosts = {"a.example"}, .key = "key 2"})) << "another key at the same host";
  EXPECT_TRUE(runs({.work = PromptWork::kFetch, .hosts = {"b.example"}, .key = "key 1"})) << "the same key at another host";
  EXPECT_TRUE(runs({.work = PromptWork::kMedia, .key = "key 1"})) << "pictures that need no fetch";
  EXPECT_EQ(num_started(PromptWork::kFetch), 3);
}

}  // namespace
}  // namespace ferry
