#include "runtime/server/front/coordinator_pool.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

using Opened = std::unique_ptr<CoordinatorPool::OpenCall>;

/// Two with both ports, of which the second has no gRPC, seen and serving.
struct Two {
  Two() {
    for (std::size_t i = 0; i < 2; ++i) pool.set_state(i, CoordinatorState::kServing, "");
  }
  Opened open(const CallTraits& traits, FrontPort port = FrontPort::kHttp, const std::vector<std::size_t>& tried = {}) {
    return pool.open({.traits = traits, .port = port, .has_prompt = true, .tried = tried, .on_lost = {}});
  }
  CoordinatorPool pool{std::vector<CoordinatorAddress>{{"127.0.0.1:1", "127.0.0.1:2"}, {"127.0.0.1:3", ""}}};
};

TEST(CoordinatorPool, NobodyServesBeforeTheFirstLook) {
  CoordinatorPool pool(std::vector<CoordinatorAddress>{{"127.0.0.1:1", ""}});
  const CallTraits traits;
  EXPECT_EQ(pool.open({.traits = traits, .on_lost = {}}), nullptr);
  EXPECT_EQ(pool.report().num_serving(), 0);
  EXPECT_EQ(pool.report().num_unserved, 1);
}

TEST(CoordinatorPool, CallsAreOpenUntilTheyGo) {
  Two two;
  Opened first = two.open({}), second = two.open({});
  EXPECT_NE(first->coordinator(), second->coordinator());
  EXPECT_EQ(two.pool.report().num_open(), 2);
  const std::size_t freed = second->coordinator();
  second.reset();
  EXPECT_EQ(two.pool.report().num_open(), 1);
  EXPECT_EQ(two.open({})->coordinator(), freed);
}

TEST(CoordinatorPool, SessionsPromptsAndUsersAreRemembered) {
  Two two;
  const std::size_t place = two.open({.session = 7, .user = 8, .beginnings = {1, 2}})->coordinator();
  const Opened busy = two.open({.session = 7});  // and so the other one is the least loaded
  EXPECT_EQ(busy->coordinator(), place);
  EXPECT_EQ(two.open({.beginnings = {1, 3}})->coordinator(), place);
  EXPECT_EQ(two.open({.user = 8})->coordinator(), place);
  EXPECT_NE(two.open({})->coordinator(), place);
  const PoolReport report = two.pool.report();
  EXPECT_EQ(report.choices[static_cast<std::size_t>(ChoiceReason::kSession)], 1);
  EXPECT_EQ(report.choices[static_cast<std::size_t>(ChoiceReason::kPrefix)], 1);
  EXPECT_EQ(report.choices[static_cast<std::size_t>(ChoiceReason::kUser)], 1);
  EXPECT_EQ(report.choices[static_cast<std::size_t>(ChoiceReason::kLoad)], 2);
  EXPECT_EQ(report.num_sessions, 1);
}

TEST(CoordinatorPool, WhatIsNoPromptIsNotRemembered) {
  Two two;
  const CallTraits traits{.session = 7};
  two.pool.open({.traits = traits, .has_prompt = false, .on_lost = {}}).reset();
  EXPECT_EQ(two.pool.report().num_sessions, 0);
}

TEST(CoordinatorPool, WhoIsDownIsForgottenAndItsSessionsMove) {
  Two two;
  const CallTraits traits{.session = 7, .beginnings = {1, 2}};
  const std::size_t place = two.open(traits)->coordinator();
  two.pool.mark_down(place, "gone");
  EXPECT_EQ(two.pool.report().coordinators[place].remembered_pieces, 0);
  EXPECT_EQ(two.pool.report().coordinators[place].reason, "gone");
  EXPECT_NE(two.open(traits)->coordinator(), place);
  two.pool.set_state(place, CoordinatorState::kServing, "");
  EXPECT_NE(two.open(traits)->coordinator(), place);  // there it is at home now
}

TEST(CoordinatorPool, WhoRefusesOrWasTriedGetsNothing) {
  Two two;
  EXPECT_EQ(two.open({}, FrontPort::kHttp, {0})->coordinator(), 1u);
  EXPECT_EQ(two.pool.report().num_retries, 1);
  two.pool.set_state(1, CoordinatorState::kRefusing, "it drains");
  EXPECT_EQ(two.open({})->coordinator(), 0u);
  EXPECT_FALSE(two.pool.has_another(FrontPort::kHttp, {0}));
  EXPECT_EQ(two.open({}, FrontPort::kHttp, {0}), nullptr);
  EXPECT_EQ(two.pool.answering(FrontPort::kHttp), (std::vector<std::size_t>{0, 1}));
}

TEST(CoordinatorPool, PortsThatACoordinatorHasNotAreNotAskedFor) {
  Two two;
  const Opened busy = two.open({}, FrontPort::kGrpc);
  EXPECT_EQ(busy->coordinator(), 0u);
  EXPECT_EQ(two.open({}, FrontPort::kGrpc)->coordinator(), 0u);
  EXPECT_EQ(two.pool.answering(FrontPort::kGrpc), std::vector<std::size_t>{0});
}

TEST(CoordinatorPool, CallsOfWhoIsGivenUpHearOfItOnce) {
  Two two;
  int num_lost = 0;
  const CallTraits traits;
  const Opened call = two.pool.open({.traits = traits, .on_lost = [&] { ++num_lost; }});
  two.pool.give_up_calls(1 - call->coordinator());
  EXPECT_EQ(num_lost, 0);
  two.pool.give_up_calls(call->coordinator());
  two.pool.give_up_calls(call->coordinator());
  EXPECT_EQ(num_lost, 1);
}

TEST(CoordinatorPool, FailuresAreReasonToLook) {
  Two two;
  int num_suspicions = 0;
  two.pool.set_on_suspicion([&] { ++num_suspicions; });
  two.pool.mark_down(0, "gone");
  two.pool.count_broken(1);
  EXPECT_EQ(num_suspicions, 2);
  EXPECT_EQ(two.pool.report().coordinators[1].num_broken, 1);
  EXPECT_EQ(two.pool.report().coordinators[0].num_failures, 1);
}

}  // namespace
}  // namespace ferry
