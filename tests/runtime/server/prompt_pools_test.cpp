#include "runtime/server/prompt_pools.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "runtime/coordinator.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

TEST(PromptPools, AsManyWaitAsRequestsMayRunAndWait) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  EngineLoad load;
  load.max_running_requests = 3;
  load.max_waiting_requests = 200;
  PromptPools pools(load);
  for (const PromptWork work : {PromptWork::kText, PromptWork::kMedia, PromptWork::kGrammar}) {
    std::atomic<int> num_started = 0;
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(pools.try_run(work, [&num_started, released] {
        ++num_started;
        released.wait();
      }));
    }
    eventually([&] { return num_started == 2; }, "both threads to have something to do");
    for (int i = 0; i < 203; ++i) EXPECT_TRUE(pools.try_run(work, [] {})) << i;
    EXPECT_FALSE(pools.try_run(work, [] {}));
  }
  EXPECT_STREQ(pools.refusal().what(), "203 prompts wait to be made; allowed: --max-seqs and --max-waiting together");
  release.set_value();
}

}  // namespace
}  // namespace ferry
