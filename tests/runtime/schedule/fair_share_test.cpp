#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/schedule/scheduler.h"
#include "tests/support/one_choice_each.h"

// How accounts share slots and memory under SchedulingPolicy::kFair, and which slot the requests of one call leave to others
// under kFcfs. Time is counted in steps.

namespace ferry {
namespace {

using TimePoint = Scheduler::TimePoint;

SchedulerOptions options_of(SchedulingPolicy policy, int64_t max_running) {
  SchedulerOptions options;
  options.max_running = max_running;
  options.max_waiting = 300;
  options.token_budget = 256;
  options.prefill_chunk = 128;
  options.num_blocks = 4000;
  options.block_tokens = 16;
  options.max_context = 10'000;
  options.vocab_size = 100;
  options.policy.policy = policy;
  return options;
}

/// A scheduler with clients, by name, each of which keeps a number of requests open.
class Server {
 public:
  explicit Server(const SchedulerOptions& options) : scheduler_(options) {}

  Sequence& send(const std::string& account, int64_t num_prompt, int32_t max_tokens,
                 std::shared_ptr<CallRequests> call = nullptr) {
    Request request;
    request.id = account + std::to_string(num_sent_++);
    request.account = account;
    request.prompt.assign(static_cast<std::size_t>(num_prompt), 7);
    request.sampling.max_tokens = max_tokens;
    request.call = std::move(call);
    Sequence* const sequence = scheduler_.add(std::move(request), {});
    EXPECT_NE(sequence, nullptr);
    ++num_open_[account];
    return *sequence;
  }

  /// "id:first+rows …" of a step.
  std::string step() {
    const StepPlan& plan = scheduler_.plan({});
    std::string text;
    for (const StepEntry& entry : plan.entries) {
      text += (text.empty() ? "" : " ") + entry.sequence->request.id + ":" + std::to_string(entry.first_token) + "+" +
              std::to_string(entry.num_rows);
      num_rows_[entry.sequence->request.account] += entry.num_rows;
    }
    const std::vector<TokenId> tokens(static_cast<std::size_t>(plan.num_samples), 1);
    scheduler_.commit(plan, test::OneChoiceEach(tokens), {});
    for (const auto& sequence : scheduler_.take_finished()) {
      --num_open_[sequence->request.account];
      ++num_ended_[sequence->request.account];
      EXPECT_EQ(sequence->num_generated(), sequence->request.sampling.max_tokens);
    }
    return text;
  }

  /// Steps until `account` has no open request; nothing after `most`.
  std::optional<int> steps_until_done(const std::string& account, int most) {
    for (int i = 0; i < most; ++i) {
      if (num_open_[account] == 0) return i;
      step();
    }
    return std::nullopt;
  }

  int64_t num_open(const std::string& account) { return num_open_[account]; }
  int64_t num_ended(const std::string& account) { return num_ended_[account]; }
  int64_t num_rows(const std::string& account) { return num_rows_[account]; }
  SchedulerLoad load() const { return scheduler_.load(); }

 private:
  Scheduler scheduler_;
  int64_t num_sent_ = 0;
  std::map<std::string, int64_t> num_open_, num_ended_, num_rows_;
};

TEST(FairShare, AnAccountThatHoldsAllSlotsGivesOneBackAtOnce) {
  Server server(options_of(SchedulingPolicy::kFair, 16));
  for (int i = 0; i < 128; ++i) server.send("many", 20, 8000);
  for (int i = 0; i < 50; ++i) server.step();
  server.send("guest", 30, 10);
  EXPECT_NE(server.step().find("guest128:0+30"), std::string::npos);
  EXPECT_EQ(server.load().num_lost_slots, 1);
  EXPECT_EQ(server.steps_until_done("guest", 100), 9);
}

TEST(FairShare, SlotsAreSharedEquallyByThoseThatWant) {
  Server server(options_of(SchedulingPolicy::kFair, 16));
  for (int i = 0; i < 40; ++i) server.send("a", 10, 500);
  server.step();
  for (int i = 0; i < 40; ++i) server.send("b", 10, 500);
  for (int i = 0; i < 3; ++i) server.send("c", 10, 500);  // wants fewer than its share
  server.step();
  server.step();
  const int64_t a = server.num_rows("a"), b = server.num_rows("b"), c = server.num_rows("c");
  for (int i = 0; i < 100; ++i) server.step();
  EXPECT_NEAR(static_cast<double>(server.num_rows("a") - a), 650, 50);
  EXPECT_NEAR(static_cast<double>(server.num_rows("b") - b), 650, 50);
  EXPECT_EQ(server.num_rows("c") - c, 300);
}

TEST(FairShare, EqualsTakeNoSlotFromEachOtherForEver) {
  for (const int64_t num_slots : {1, 2, 5, 8}) {
    for (const int num_accounts : {2, 3}) {
      Server server(options_of(SchedulingPolicy::kFair, num_slots));
      const auto refill = [&] {
        for (int account = 0; account < num_accounts; ++account) {
          const std::string name(1, static_cast<char>('a' + account));
          while (server.num_open(name) < 12) server.send(name, 10 + account, 20 + 7 * account);
          if (server.load().num_running == 0) server.step();  // the first one has all slots before the second comes
        }
      };
      refill();
      for (int i = 0; i < 20; ++i) server.step();
      const int64_t num_lost = server.load().num_lost_slots;
      EXPECT_LE(num_lost, num_slots);
      for (int i = 0; i < 2000; ++i) refill(), server.step();
      EXPECT_EQ(server.load().num_lost_slots, num_lost) << num_slots << " slots, " << num_accounts << " accounts";
      EXPECT_EQ(server.load().num_preemptions, num_lost);
    }
  }
}

TEST(FairShare, OneAccountIsServedAsWithoutShares) {
  Server fair(options_of(SchedulingPolicy::kFair, 4)), plain(options_of(SchedulingPolicy::kFcfs, 4));
  for (int i = 0; i < 400; ++i) {
    if (i % 3 == 0 && i < 200) {
      fair.send("one", 5 + 17 * (i % 20), 3 + i % 40);
      plain.send("one", 5 + 17 * (i % 20), 3 + i % 40);
    }
    ASSERT_EQ(fair.step(), plain.step()) << "step " << i;
  }
  EXPECT_EQ(fair.load().num_preemptions, 0);
}

TEST(FairShare, AnAccountThatHoldsAllMemoryGivesSomeBackAtOnce) {
  SchedulerOptions options = options_of(SchedulingPolicy::kFair, 16);
  options.num_blocks = 60;  // 960 tokens
  options.max_context = 900;
  for (const int64_t num_swap_blocks : {0, 60}) {
    options.num_swap_blocks = num_swap_blocks;
    Server server(options);
    for (int i = 0; i < 16; ++i) server.send("many", 20, 800);
    for (int i = 0; i < 120; ++i) server.step();
    ASSERT_GT(server.load().num_preempted, 0) << "the memory is not full";
    const Sequence& guest = server.send("guest", 200, 100);
    const std::string step = server.step();
    EXPECT_NE(step.find("guest16:0+128"), std::string::npos) << step;
    EXPECT_NE(step.find("many0:"), std::string::npos) << step;
    for (int i = 0; i < 80; ++i) server.step();
    EXPECT_EQ(guest.num_preemptions, 0) << "it was in the way of requests that its account's equals do not come before";
    EXPECT_TRUE(server.steps_until_done("guest", 200));
    EXPECT_TRUE(server.steps_until_done("many", 40'000));
  }
}

TEST(FairShare, NobodyStarvesBesideAClientThatComesBackAgainAndAgain) {
  Server server(options_of(SchedulingPolicy::kFair, 4));
  for (int i = 0; i < 12; ++i) server.send("many", 40, 300);
  int num_steps = 0;
  for (; server.num_open("many") > 0 && num_steps < 20'000; ++num_steps) {
    if (num_steps % 25 == 0 && server.num_open("guest") == 0) server.send("guest", 20, 5);
    server.step();
  }
  EXPECT_EQ(server.num_ended("many"), 12);
  EXPECT_LE(num_steps, 1600) << "12 requests of 300 tokens on three or four slots";
}

TEST(FairShare, MoreAccountsThanSlotsAreServedInTurn) {
  Server server(options_of(SchedulingPolicy::kFair, 2));
  for (int i = 0; i < 6; ++i) server.send("many", 10, 50);
  server.step();
  for (const std::string name : {"a", "b", "c"}) server.send(name, 10, 50);
  for (int i = 0; i < 1000 && server.num_ended("a") + server.num_ended("b") + server.num_ended("c") < 3; ++i) server.step();
  EXPECT_LE(server.num_ended("many"), 2) << "others without any slot go first";
  EXPECT_TRUE(server.steps_until_done("many", 1000));
}

TEST(CallRequests, LeaveTheLastSlotToOthers) {
  Server server(options_of(SchedulingPolicy::kFcfs, 4));
  const auto call = std::make_shared<CallRequests>();
  for (int i = 0; i < 128; ++i) server.send("many", 10, 100, call);
  for (int i = 0; i < 30; ++i) server.step();
  EXPECT_EQ(server.load().num_running, 3);
  EXPECT_EQ(call->num_running, 3);
  server.send("guest", 20, 10);
  EXPECT_NE(server.step().find("guest128:0+20"), std::string::npos) << "it passes those that leave the slot";
  EXPECT_EQ(server.load().num_running, 4);
  EXPECT_TRUE(server.steps_until_done("guest", 20));
  EXPECT_TRUE(server.steps_until_done("many", 10'000));
  EXPECT_EQ(call->num_running, 0);
}

TEST(CallRequests, OfSeveralCallsHaveAllSlots) {
  Server server(options_of(SchedulingPolicy::kFcfs, 4));
  const auto one = std::make_shared<CallRequests>(), two = std::make_shared<CallRequests>();
  for (int i = 0; i < 8; ++i) server.send("one", 10, 100, one);
  for (int i = 0; i < 8; ++i) server.send("two", 10, 100, two);
  server.step();
  EXPECT_EQ(one->num_running, 3);
  EXPECT_EQ(two->num_running, 1);
  EXPECT_TRUE(server.steps_until_done("two", 5000));
  EXPECT_TRUE(server.steps_until_done("one", 5000));
}

TEST(CallRequests, UseTheOnlySlotThereIs) {
  Server server(options_of(SchedulingPolicy::kFcfs, 1));
  const auto call = std::make_shared<CallRequests>();
  for (int i = 0; i < 3; ++i) server.send("many", 10, 5, call);
  EXPECT_TRUE(server.steps_until_done("many", 100));
}

}  // namespace
}  // namespace ferry
