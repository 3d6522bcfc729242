#include "runtime/plan/step_model.h"

#include <gtest/gtest.h>

#include "runtime/plan/plan_picture.h"
#include "tests/runtime/plan/small_plan.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

TEST(StepModel, OneProcessDoesAllInTurn) {
  const PlanResult r = plan_of(1, always(0, 1), {.workers = 0, .batch = 1, .context = 8});
  EXPECT_DOUBLE_EQ(r.decode.coordinator, 2 + 1 + 0.5 + 8 * 0.125);
  EXPECT_DOUBLE_EQ(r.decode.experts, 0.25 + 2 * 4.5);
  EXPECT_DOUBLE_EQ(r.decode.transport + r.decode.imbalance + r.decode.queue, 0);
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
  EXPECT_DOUBLE_EQ(r.decode.experts, 0.25 + 2 * 4.5);
  EXPECT_DOUBLE_EQ(r.decode.imbalance, 0);
  // One row goes to each of two workers with probability 1 - (1/2)^2, and two come back.
  EXPECT_DOUBLE_EQ(r.decode.transport, small_transport(2, 2 * 0.75, 2));
  EXPECT_EQ(r.coordinator_hosts + r.worker_hosts, 2);  // the same one
}

TEST(StepModel, RanksOfOneHostTakeWhatWasMeasuredOfAsMany) {
  PlanHost host = small_host(1);
  host.exchange = {{.workers = 1, .curve = {{{1, 3}}}}, {.workers = 3, .curve = {{{1, 7}}}}};
  const PlanCase two{.workers = 2, .batch = 1, .context = 8};
  EXPECT_DOUBLE_EQ(plan_of(host, always(0, 2), two).decode.transport, 5);
  RankCosts costs = host.alone;
  costs.own_decode = {{{1, 10}}};
  costs.expert = {{{1, 6}}};
  const double num_bytes = small_bytes(2, 2 * 0.75, 2);
  costs.exchange_decode = {{{num_bytes / 2, 1}, {num_bytes * 3 / 2, 2}}};
  host.together = {{.workers = 2, .costs = costs}};
  const PlanResult r = plan_of(host, always(0, 2), two);
  EXPECT_DOUBLE_EQ(r.decode.coordinator, 10 + 1 + 0.5 + 1);
  EXPECT_DOUBLE_EQ(r.decode.experts, 0.25 + 2 * 6);
  EXPECT_DOUBLE_EQ(r.decode.transport, 1.5);
  // One process has the host to itself.
  EXPECT_DOUBLE_EQ(plan_of(host, always(0, 2), {.workers = 0, .batch = 1, .context = 8}).decode.sum(), 13.75);
}

TEST(StepModel, HostsOfTheirOwnWorkAtOnceAndHideTheSharedExpert) {
  const PlanResult even = plan_of(3, always(0, 2), {.workers = 2, .batch = 1, .context = 8});
  EXPECT_DOUBLE_EQ(even.decode.coordinator, 4.5);
  // The shared expert's second is not counted twice.
  EXPECT_NEAR(even.decode.sum(), 4.5 - 1 + small_transport(2, 2 * 0.75, 2) + 4.75, 1e-12);
  const PlanResult uneven = plan_of(3, always(0, 1), {.workers = 2, .batch = 1, .context = 8});
  // Both experts are the first worker's.
  EXPECT_NEAR(uneven.decode.sum(), 4.5 - 1 + small_transport(2, 1, 2) + 9.25, 1e-12);
  EXPECT_GT(uneven.decode.imbalance, 3);
}

TEST(StepModel, MoreBandwidthAndShorterTripsAreNeverSlower) {
  for (const int64_t workers : {1, 2, 4}) {
    PlanHost host = small_host(5);
    host.link_bytes_per_s = 100;
    const PlanCase asked{.workers = workers, .batch = 3, .prompt = 512};
    PlanResult before = plan_of(host, always(0, 3), asked);
    for (int i = 0; i < 6; ++i) {
      (i % 2 == 0 ? host.link_bytes_per_s : host.read_bytes_per_s) *= 3;
      host.link_s /= 2;
      const PlanResult now = plan_of(host, always(0, 3), asked);
      EXPECT_GE(now.decode_tokens_per_s, before.decode_tokens_per_s);
      EXPECT_GE(now.prefill_tokens_per_s, before.prefill_tokens_per_s);
      before = now;
    }
  }
}

TEST(StepModel, CopiesLetAChoiceEvenTheWork) {
  PlanCase asked{.workers = 2, .copies = {.name = "2x", .kind = Redundancy::Kind::kTwice}, .batch = 1, .context = 8};
  const PlanResult twice = plan_of(3, always(0, 1), asked);
  EXPECT_NEAR(twice.decode.imbalance, 0, 1e-12);
  EXPECT_DOUBLE_EQ(twice.worker_bytes, 40);
  asked.copies = {};
  EXPECT_DOUBLE_EQ(plan_of(3, always(0, 1), asked).worker_bytes, 20);
}

TEST(StepModel, HalvesOfAPromptHideBehindEachOther) {
  const PlanResult r = plan_of(3, always(0, 2), {.workers = 2, .batch = 1, .prompt = 512});
  // Of one layer half of the shorter part, the coordinator's 2 s of own work and 1 s of shared expert, is not hidden.
  const double away = small_transport(2, 2 * 0.75 * 512, 512 * 2) + 260.25;
  EXPECT_NEAR(r.prefill.sum(), 3.5 + away - 1 - 3 * 0.5, 1e-9);
}

TEST(StepModel, CoordinatorsShareTheSequencesAndWaitForEachOther) {
  const PlanCase one{.workers = 2, .coordinators = 1, .batch = 1, .context = 8};
  const PlanCase two{.workers = 2, .coordinators = 2, .batch = 2, .context = 8};
  const PlanResult first = plan_of(4, always(0, 2), one), both = plan_of(4, always(0, 2), two);
  EXPECT_EQ(both.coordinator_hosts, 2);
  EXPECT_EQ(both.worker_hosts, 2);
  EXPECT_DOUBLE_EQ(both.decode.coordinator, first.decode.coordinator);
  EXPECT_GT(both.decode.queue, 0);
  EXPECT_LT(both.decode_tokens_per_s, 2 * first.decode_tokens_per_s);
  EXPECT_GT(both.decode_tokens_per_s, first.decode_tokens_per_s);
  EXPECT_GT(both.worker_use, first.worker_use);
  EXPECT_DOUBLE_EQ(both.merge.share, 0);
  EXPECT_NEAR(both.merge.none_tokens_per_s, both.decode_tokens_per_s, 1e-12);
  // Merged, both rows are answered when each expert has had both: 4 s and 1 s for two rows.
  const double own = first.decode.sum() - 4.75, rows_two = 260 - 255.5 * 510 / 511;
  EXPECT_NEAR(both.merge.all_tokens_per_s, 2 / (own + 0.25 + rows_two), 1e-9);
}

TEST(StepModel, ManyCoordinatorsAreNeverFasterThanSoManyOfOne) {
  const double one = plan_of(20, always(0, 2), {.workers = 4, .batch = 1, .context = 8}).decode_tokens_per_s;
  double before = 0;
  for (int64_t m = 1; m <= 8; m *= 2) {
    const PlanResult r = plan_of(20, always(0, 2), {.workers = 4, .coordinators = m, .batch = m, .context = 8});
    EXPECT_LE(r.decode_tokens_per_s, static_cast<double>(m) * one + 1e-12) << m;
    EXPECT_GE(r.decode_tokens_per_s, before) << m;
    EXPECT_LE(r.worker_use, 1) << m;
    before = r.decode_tokens_per_s;
  }
}

TEST(StepModel, CoordinatorsOfOneHostTakeItsCoresInTurn) {
  const PlanCase one{.workers = 2, .batch = 1, .context = 8}, two{.workers = 2, .coordinators = 2, .batch = 2, .context = 8};
  const PlanResult first = plan_of(1, always(0, 2), one), both = plan_of(1, always(0, 2), two);
  EXPECT_DOUBLE_EQ(both.decode.coordinator, 2 * first.decode.coordinator);
  // The same cores do the same work, but for what is merged.
  EXPECT_LE(both.merge.none_tokens_per_s, first.decode_tokens_per_s * (1 + 1e-12));
  EXPECT_GT(both.merge.share, 0);
  EXPECT_GT(both.decode_tokens_per_s, both.merge.none_tokens_per_s);
  EXPECT_LT(both.decode_tokens_per_s, both.merge.all_tokens_per_s);
}

TEST(StepModel, AllIsBehindAContext) {
  PlanHost host = small_host(1);
  host.alone.key_prefill = 0.5;
  const PlanCase asked{.workers = 0, .batch = 2, .depth = 6, .context = 8, .prompt = 512, .prefill_chunk = 256};
  const PlanResult r = plan_of(host, always(0, 1), asked);
  // Two rows look back on 14 tokens each, each token of both taking the middle between one and three rows.
  EXPECT_DOUBLE_EQ(r.decode.coordinator, 3.5 + 14 * 0.1875);
  // The halves of a prompt look back on 6 tokens and on 6 + 256; the head is the last one's.
  EXPECT_DOUBLE_EQ(r.prefill.coordinator, 2 * 3 + 0.5 + 256 * (6 + 262) * 0.5);
  EXPECT_DOUBLE_EQ(r.cache_bytes, 2 * (6 + 14));
  const PlanResult near = plan_of(host, always(0, 1), {.workers = 0, .batch = 2, .context = 14});
  EXPECT_DOUBLE_EQ(r.decode.coordinator, near.decode.coordinator);
  EXPECT_EQ(r.most_sequences, near.most_sequences);
}

TEST(StepModel, EachDepthHasABest) {
  const RoutingTrace trace = always(0, 1);
  std::vector<PlanResult> results;
  for (const int64_t depth : {0, 4})
    for (const int64_t workers : {0, 1}) results.push_back(plan_of(3, trace, {.workers = workers, .depth = depth}));
  for (PlanResult& r : results) r.fits = true;
  EXPECT_EQ(best_of(results).size(), 2U);
  EXPECT_NE(plan_table(results, {}).find(" depth "), std::string::npos);
  EXPECT_NE(plan_svg(results).find("batch 1 @ 4, copies 0"), std::string::npos);
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
  EXPECT_NE(plan_table(results, {}).find("DOES NOT FIT"), std::string::npos);
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
