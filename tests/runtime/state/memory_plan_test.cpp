#include "runtime/state/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "runtime/base/error.h"

namespace ferry {
namespace {

MemoryRequest request_of(int64_t budget_bytes) {
  return {.budget_bytes = budget_bytes,
          .bytes_per_slot = 1000,
          .bytes_per_block = 10,
          .block_tokens = 16,
          .max_sequences = 3,
          .max_context = 1601};  // 101 blocks; a share is 26
}

void expect_plan(const MemoryPlan& plan, int64_t num_slots, int64_t num_blocks, int64_t max_context) {
  EXPECT_EQ(plan.num_slots, num_slots);
  EXPECT_EQ(plan.num_blocks, num_blocks);
  EXPECT_EQ(plan.max_context, max_context);
  EXPECT_EQ(plan.bytes, num_slots * 1000 + num_blocks * 10);
}

TEST(PlanMemory, GivesAllThatIsWishedForIfItFits) { expect_plan(plan_memory(request_of(1'000'000)), 3, 303, 1601); }

TEST(PlanMemory, ServesOneFullContextFirst) {
  expect_plan(plan_memory(request_of(1000 + 1010)), 1, 101, 1601);
  expect_plan(plan_memory(request_of(1000 + 1010 + 1259)), 1, 101, 1601);  // one byte short of a second slot and its share
  expect_plan(plan_memory(request_of(1000 + 1010 + 1260)), 2, 127, 1601);
  expect_plan(plan_memory(request_of(1000 + 1010 + 1260 + 55)), 2, 132, 1601);
}

TEST(PlanMemory, ShortensTheContextWhenItMust) {
  expect_plan(plan_memory(request_of(1000 + 500)), 1, 50, 800);
  expect_plan(plan_memory(request_of(1000 + 10)), 1, 1, 16);
}

TEST(PlanMemory, SharesACutContextWhereSequencesRunSideBySide) {
  MemoryRequest request = request_of(1000 + 1009);
  request.shares_blocks = true;
  expect_plan(plan_memory(request), 1, 100, 1600);  // a quarter of 1009 is no slot
  request.bytes_per_slot = 100;
  request.budget_bytes = 100 + 1009;
  MemoryPlan plan = plan_memory(request);
  EXPECT_EQ(plan.num_slots, 1 + 2) << "110 bytes each, of 252";
  EXPECT_EQ(plan.num_blocks, (1009 - 2 * 100) / 10);
  EXPECT_EQ(plan.max_context, 80 * 16);
  request.max_sequences = 2;
  EXPECT_EQ(plan_memory(request).num_slots, 2);
  request.budget_bytes = full_context_budget(request);
  EXPECT_EQ(request.budget_bytes, 100 + 1010);
  plan = plan_memory(request);
  EXPECT_EQ(plan.num_slots, 1) << "a full context fits, and comes first";
  EXPECT_EQ(plan.max_context, 1601);
}

// Else one sequence at a time would run where a little less memory, which cuts the context, has many.
TEST(PlanMemory, WhatIsLeftBehindAFullContextHoldsFurtherSequences) {
  MemoryRequest request = request_of(1000 + 1010 + 1259);  // one byte short of a share
  request.shares_blocks = true;
  expect_plan(plan_memory(request), 2, 101 + 25, 1601);
  request.bytes_per_slot = 100;
  EXPECT_EQ(uncut_budget(request), 100 + 1010 + 2 * 110);
  request.budget_bytes = uncut_budget(request);
  EXPECT_EQ(plan_memory(request).num_slots, 3);
  EXPECT_EQ(plan_memory(request).max_context, 1601);
  --request.budget_bytes;
  EXPECT_EQ(plan_memory(request).num_slots, 2);
  EXPECT_EQ(plan_memory(request).max_context, 1601);
  request.budget_bytes = 100 + 1010 + 360 + 110;
  EXPECT_EQ(plan_memory(request).num_slots, 3) << "one with its share, one with a block";
  request.shares_blocks = false;
  EXPECT_EQ(plan_memory(request).num_slots, 2);
  EXPECT_EQ(uncut_budget(request), full_context_budget(request));
}

// 40 layers, of which 10 (and an MTP layer) have keys and values, at the context and the memory that a server has by default.
TEST(PlanMemory, TheLargestContextOfThe35BModel) {
  MemoryRequest request{.budget_bytes = int64_t{2} << 30,
                        .bytes_per_slot = 30 * ((int64_t{2} << 20) + (int64_t{48} << 10)),
                        .bytes_per_block = 16 * 11 * int64_t{2048},
                        .max_sequences = 16,
                        .max_context = 262144,
                        .shares_blocks = true};
  const MemoryPlan plan = plan_memory(request);
  EXPECT_EQ(plan.num_slots, 9);
  EXPECT_EQ(plan.max_context, 4350 * 16);
  request.budget_bytes = full_context_budget(request);
  EXPECT_EQ(request.budget_bytes, 5'969'969'152);
  EXPECT_EQ(plan_memory(request).max_context, 262144);
  --request.budget_bytes;
  EXPECT_LT(plan_memory(request).max_context, 262144);
  request.budget_bytes = uncut_budget(request);
  EXPECT_EQ(request.budget_bytes, 6'941'212'672);
  EXPECT_EQ(plan_memory(request).max_context, 262144);
  EXPECT_EQ(plan_memory(request).num_slots, 16);
}

TEST(PlanMemory, FurtherSequencesComeWithWhatTheyAreSaidToNeed) {
  MemoryRequest request = request_of(0);
  request.further_tokens = 160;
  EXPECT_EQ(whole_budget(request), 3 * 1000 + (101 + 2 * 10) * 10);
  request.budget_bytes = whole_budget(request);
  expect_plan(plan_memory(request), 3, 121, 1601);
  --request.budget_bytes;
  EXPECT_EQ(plan_memory(request).num_slots, 2);
  request.further_tokens = 0;
  EXPECT_EQ(whole_budget(request), 3 * 1000 + (101 + 2 * 26) * 10) << "a quarter of the context";
}

TEST(PlanMemory, NamesWhatOneSequenceNeeds) {
  try {
    plan_memory(request_of(1009));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    const std::string message = error.what();
    for (const char* part : {"1009 bytes", "1010 for one sequence of 16", "2010 for one of the context's 1601"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
}

TEST(PlanMemory, ModelsWithOneKindOfLayer) {
  MemoryRequest no_slots = request_of(5000);
  no_slots.bytes_per_slot = 0;
  EXPECT_EQ(plan_memory(no_slots).num_slots, 3);
  EXPECT_EQ(plan_memory(no_slots).num_blocks, 303);
  MemoryRequest no_blocks = request_of(2500);
  no_blocks.bytes_per_block = 0;
  EXPECT_EQ(plan_memory(no_blocks).num_slots, 2);
  EXPECT_EQ(plan_memory(no_blocks).num_blocks, 202);
}

TEST(PlanMemory, StaysWithinBudgetAndWishes) {
  std::mt19937_64 rng(17);
  const auto pick = [&](int64_t lowest, int64_t highest) {
    return std::uniform_int_distribution<int64_t>(lowest, highest)(rng);
  };
  for (int i = 0; i < 2000; ++i) {
    MemoryRequest request{.budget_bytes = pick(0, 1'000'000),
                          .bytes_per_slot = pick(0, 5000),
                          .bytes_per_block = pick(0, 500),
                          .block_tokens = pick(1, 40),
                          .max_sequences = pick(1, 70),
                          .max_context = pick(1, 9000),
                          .shares_blocks = i % 2 == 0};
    request.budget_bytes = std::max(request.budget_bytes, request.bytes_per_slot + request.bytes_per_block);
    const MemoryPlan plan = plan_memory(request);
    const int64_t full_blocks = (request.max_context + request.block_tokens - 1) / request.block_tokens;
    EXPECT_LE(plan.bytes, request.budget_bytes);
    EXPECT_GE(plan.num_slots, 1);
    EXPECT_LE(plan.num_slots, request.max_sequences);
    EXPECT_GE(plan.num_blocks, 1);
    EXPECT_LE(plan.num_blocks, plan.num_slots * full_blocks);
    EXPECT_TRUE(plan.num_blocks == plan.num_slots * full_blocks || plan.bytes + request.bytes_per_block > request.budget_bytes)
        << "bytes left over";
  }
}

}  // namespace
}  // namespace ferry
