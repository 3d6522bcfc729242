#include "runtime/plan/step_model.h"

#include <gtest/gtest.h>

#include "runtime/plan/plan_picture.h"
#include "tests/support/expect_error.h"

// Steps whose times are worked out by hand: one layer of four experts, two a token, of which every row takes the same two.

namespace ferry {
namespace {

/// Decode steps of one row that takes `a` and `b`, and a prompt of 512 such rows.
RoutingTrace always(uint16_t a, uint16_t b) {
  RoutingTrace trace{.shape = {.model = "m", .num_experts = 4, .top_k = 2, .layers = {0}}};
  trace.steps = {{.id = 0, .phase = RoutingPhase::kDecode, .num_rows = 1, .first = 0},
                 {.id = 1, .phase = RoutingPhase::kPrefill, .num_rows = 512, .first = 2}};
  trace.ids = {a, b};
  for (int i = 0; i < 512; ++i) trace.ids.insert(trace.ids.end(), {a, b});
  return trace;
}

PlanModel small_model() {
  return {.shape = "s",
          .num_layers = 1,
          .num_expert_layers = 1,
          .num_experts = 4,
          .top_k = 2,
          .coordinator_bytes = 100,
          .expert_bytes = 10,
          .bytes_per_token = 1,
          .bytes_per_sequence = 6,
          .row_out_bytes = 3,
          .row_in_bytes = 5};
}

/// 2 s of own work, 1 s of the shared expert, 0.5 s of the head; an expert takes 4 s and half a second a row, a call 0.25 s.
PlanHost small_host(int64_t count) {
  const RankCosts costs{.own_decode = {{{1, 2}}},
                        .own_prefill = {{{1, 2}}},
                        .shared_decode = {{{1, 1}}},
                        .shared_prefill = {{{1, 1}}},
                        .head = {{{1, 0.5}}},
                        .key_decode = 0.125,
                        .key_prefill = 0,
                        .expert_call = 0.25,
                        .expert = {{{1, 4.5}, {512, 260}}}};
  return {.name = "h",
          .count = count,
          .cores = 2,
          .ram_bytes = 200,
          .read_bytes_per_s = 5,
          .link_s = 0.75,
          .message_s = 0.25,
          .link_bytes_per_s = 16,
          .alone = costs,
          .beside = costs};
}

PlanResult plan_of(int64_t num_hosts, const RoutingTrace& trace, const PlanCase& asked) {
  const PlanModel model = small_model();
  const std::vector<PlanHost> hosts{small_host(num_hosts)};
  const RoutingRows rows(trace);
  return StepModel(model, hosts, rows).plan(asked);
}

TEST(StepModel, OneProcessDoesAllInTurn) {
  const RoutingTrace trace = always(0, 1);
  const PlanResult r = plan_of(1, trace, {.workers = 0, .batch = 1, .context = 8});
  EXPECT_DOUBLE_EQ(r.decode.coordinator, 2 + 1 + 0.5 + 8 * 0.125);
  EXPECT_DOUBLE_EQ(r.decode.experts, 0.25 + 2 * 4.5);
  EXPECT_DOUBLE_EQ(r.decode.transport + r.decode.imbalance, 0);
  EXPECT_DOUBLE_EQ(r.decode_tokens_per_s, 1 / 13.75);
  EXPECT_EQ(r.bound, "experts");
  EXPECT_DOUBLE_EQ(r.prefill_tokens_per_s, 512 / (3.5 + 0.25 + 2 * 260));
  EXPECT_DOUBLE_EQ(r.coordinator_bytes, 140);
  EXPECT_EQ(r.most_sequences, 4);  // 60 bytes are left, 14 a sequence
}

TEST(StepModel, RanksOfOneHostShareIt) {
  // Experts 0 and 2, one on each worker: evenly shared, but the host does one after the other.
  const PlanResult r = plan_of(1, always(0, 2), {.workers = 2, .batch = 1, .context = 8});
  EXPECT_DOUBLE_EQ(r.decode.coordinator, 4.5);
  EXPECT_DOUBLE_EQ(r.decode.experts, 2 * (0.25 + 4.5));
  EXPECT_DOUBLE_EQ(r.decode.imbalance, 0);
  // One row goes to each of two workers with probability 1 - (1/2)^2, and two come back.
  EXPECT_DOUBLE_EQ(r.decode.transport, 0.75 + 0.25 + (2 * 0.75 * 3 + 2 * 5) / 16);
}

TEST(StepModel, HostsOfTheirOwnWorkAtOnceAndHideTheSharedExpert) {
  const PlanResult even = plan_of(3, always(0, 2), {.workers = 2, .batch = 1, .context = 8});
  const double transport = 0.75 + 0.25 + (2 * 0.75 * 3 + 2 * 5) / 16;
  EXPECT_DOUBLE_EQ(even.decode.coordinator, 4.5);
  EXPECT_NEAR(even.decode.sum(), 4.5 - 1 + transport + 4.75, 1e-12);  // the shared expert's second is not counted twice
  const PlanResult uneven = plan_of(3, always(0, 1), {.workers = 2, .batch = 1, .context = 8});
  EXPECT_NEAR(uneven.decode.sum(), 4.5 - 1 + 1 + (3 + 2 * 5) / 16.0 + 9.25, 1e-12);  // both experts are the first worker's
  EXPECT_GT(uneven.decode.imbalance, 3);
}

TEST(StepModel, CopiesLetAChoiceEvenTheWork) {
  PlanCase asked{.workers = 2, .copies = {.name = "2x", .kind = Redundancy::Kind::kTwice}, .batch = 1, .context = 8};
  const PlanResult twice = plan_of(3, always(0, 1), asked);
  EXPECT_NEAR(twice.decode.imbalance, 0, 1e-12);
  EXPECT_DOUBLE_EQ(twice.worker_bytes, 40);
  EXPECT_DOUBLE_EQ(twice.lost_share, 0);
  EXPECT_DOUBLE_EQ(twice.reload_s, 0);
  asked.copies = {};
  const PlanResult once = plan_of(3, always(0, 1), asked);
  EXPECT_DOUBLE_EQ(once.worker_bytes, 20);
  EXPECT_DOUBLE_EQ(once.lost_share, 0.5);
  EXPECT_DOUBLE_EQ(once.reload_s, 0.5 * 40 / 5);
  EXPECT_GT(once.after_death_tokens_per_s, 0);
}

TEST(StepModel, HalvesOfAPromptHideBehindEachOther) {
  const PlanResult r = plan_of(3, always(0, 2), {.workers = 2, .batch = 1, .prompt = 512});
  // Of one layer half of the shorter part, the coordinator's 2 s of own work and 1 s of shared expert, is not hidden.
  const double away = 0.75 + 0.25 + (2 * 0.75 * 512 * 3 + 512 * 2 * 5) / 16 + 260.25;
  EXPECT_NEAR(r.prefill.sum(), 3.5 + away - 1 - 3 * 0.5, 1e-9);
}

TEST(StepModel, CoordinatorsShareTheSequences) {
  PlanHost host = small_host(4);
  host.alone.own_decode = {{{1, 2}, {2, 4}}};
  const PlanModel model = small_model();
  const RoutingTrace trace = always(0, 2);
  const RoutingRows rows(trace);
  StepModel steps(model, {&host, 1}, rows);
  const PlanResult one = steps.plan({.workers = 2, .coordinators = 1, .batch = 2, .context = 8});
  const PlanResult two = steps.plan({.workers = 2, .coordinators = 2, .batch = 2, .context = 8});
  EXPECT_NEAR(one.decode.coordinator - two.decode.coordinator, 2 + 8 * 0.125, 1e-12);
}

TEST(StepModel, WhatDoesNotFitIsNotTheBest) {
  const RoutingTrace trace = always(0, 1);
  std::vector<PlanResult> results{plan_of(1, trace, {.workers = 0, .batch = 1, .context = 8}),
                                  plan_of(3, trace, {.workers = 2, .batch = 1, .context = 8}),
                                  plan_of(3, trace, {.workers = 1, .batch = 1, .context = 400})};
  EXPECT_TRUE(results[0].fits && results[1].fits);
  EXPECT_FALSE(results[2].fits);
  results[2].decode_tokens_per_s = 1e9;
  results[1].decode_tokens_per_s = 2 * results[0].decode_tokens_per_s;
  EXPECT_EQ(best_of(results), std::vector<std::size_t>{1});
  EXPECT_NE(plan_table(results).find("DOES NOT FIT"), std::string::npos);
  EXPECT_NE(plan_svg(results).find("</svg>"), std::string::npos);
}

TEST(StepModel, CasesThatCannotBeAreRefused) {
  const RoutingTrace trace = always(0, 1);
  const auto refused = [&](const PlanCase& asked, const std::vector<std::string>& parts) {
    test::expect_error([&] { plan_of(2, trace, asked); }, ErrorCode::kInvalidArgument, parts);
  };
  refused({.workers = 5}, {"5 workers", "0 to 4"});
  refused({.workers = 1, .coordinators = 2, .batch = 1}, {"2 coordinators"});
  refused({.workers = 0, .coordinators = 2, .batch = 4}, {"2 coordinators"});
}

}  // namespace
}  // namespace ferry
