#include <gtest/gtest.h>

#include "runtime/model/step_input.h"
#include "runtime/schedule/scheduler.h"
#include "tests/support/expect_error.h"
#include "tests/support/one_choice_each.h"

// Sequences with pictures: they run, and have no rows before their pictures are there.

namespace ferry {
namespace {

using TimePoint = Scheduler::TimePoint;

TimePoint at_ms(int64_t ms) { return TimePoint(std::chrono::milliseconds(ms)); }

SchedulerOptions few_slots() {
  SchedulerOptions options;
  options.max_running = 3;
  options.max_waiting = 4;
  options.token_budget = 200;
  options.prefill_chunk = 128;
  options.num_blocks = 40;
  options.block_tokens = 16;
  options.max_context = 500;
  options.vocab_size = 100;
  options.placeholders = {{"image_token_id", 97}, {"video_token_id", 98}};
  return options;
}

Request text_of(const std::string& id, int64_t num_prompt) {
  Request request;
  request.id = id;
  request.prompt.assign(static_cast<std::size_t>(num_prompt), 7);
  request.sampling.max_tokens = 3;
  return request;
}

Request picture_of(const std::string& id, int64_t num_prompt) {
  Request request = text_of(id, num_prompt);
  request.media = std::make_shared<const PromptMedia>();
  return request;
}

std::shared_ptr<const EmbeddedMedia> embedded() { return std::make_shared<const EmbeddedMedia>(); }

/// "id:first+num" of the plan's pieces, '*' where they sample; commits it.
std::string step(Scheduler& scheduler, TimePoint now = at_ms(0)) {
  const StepPlan& plan = scheduler.plan(now);
  std::string text;
  for (const StepEntry& entry : plan.entries) {
    text += (text.empty() ? "" : " ") + entry.sequence->request.id + ":" + std::to_string(entry.first_token) + "+" +
            std::to_string(entry.num_rows) + (entry.samples ? "*" : "");
  }
  scheduler.commit(plan, test::OneChoiceEach(std::vector<TokenId>(static_cast<std::size_t>(plan.num_samples), 1)), now);
  return text;
}

void expect_load(const Scheduler& scheduler, int64_t num_running, int64_t num_waiting, int64_t num_used_blocks) {
  const SchedulerLoad load = scheduler.load();
  EXPECT_EQ(num_running, load.num_running);
  EXPECT_EQ(num_waiting, load.num_waiting);
  EXPECT_EQ(num_used_blocks, load.num_used_blocks);
}

TEST(SchedulerMedia, WhoWaitsHoldsASlotAndLetsOthersPass) {
  Scheduler scheduler(few_slots());
  Sequence* a = scheduler.add(picture_of("a", 150), at_ms(0));
  scheduler.add(text_of("b", 30), at_ms(0));
  EXPECT_EQ(nullptr, scheduler.next_for_media()) << "it is not admitted yet";
  EXPECT_EQ("b:0+30*", step(scheduler));
  expect_load(scheduler, 2, 0, 2);  // ceil(30 / 16)
  EXPECT_EQ(a, scheduler.next_for_media());
  EXPECT_GE(a->slot, 0);
  EXPECT_EQ(RequestState::kWaitingForMedia, a->state());
  EXPECT_TRUE(a->blocks.empty());
  scheduler.add(text_of("c", 20), at_ms(0));
  EXPECT_EQ("b:30+1* c:0+20*", step(scheduler));
  EXPECT_EQ(0, a->num_computed);
}

TEST(SchedulerMedia, WithItsMediaItHasThePiecesOfAText) {
  for (const int64_t num_prompt : {1, 63, 64, 65, 128, 129, 150, 300}) {
    Scheduler with(few_slots()), without(few_slots());
    Sequence* sequence = with.add(picture_of("a", num_prompt), at_ms(0));
    without.add(text_of("a", num_prompt), at_ms(0));
    EXPECT_EQ("", step(with));
    with.give_media(*sequence, embedded());
    EXPECT_EQ(nullptr, with.next_for_media());
    for (int i = 0; i < 6; ++i) EXPECT_EQ(step(without), step(with)) << num_prompt << " tokens, step " << i;
    ASSERT_EQ(1U, with.take_finished().size());
  }
}

TEST(SchedulerMedia, WhoGotItsMediaTakesBlocksFromTheYounger) {
  SchedulerOptions options = few_slots();
  options.num_blocks = 20;
  options.num_swap_blocks = 20;
  Scheduler scheduler(options);
  Sequence* a = scheduler.add(picture_of("a", 60), at_ms(0));
  Request long_answer = text_of("b", 30);
  long_answer.sampling.max_tokens = 250;
  Sequence* b = scheduler.add(std::move(long_answer), at_ms(0));
  for (int i = 0; i < 240; ++i) step(scheduler);
  EXPECT_EQ(RequestState::kDecoding, b->state());
  expect_load(scheduler, 2, 0, 17);
  scheduler.give_media(*a, embedded());
  EXPECT_EQ("a:0+60*", step(scheduler));
  EXPECT_EQ(RequestState::kPreempted, b->state());
}

TEST(SchedulerMedia, IsGivenInOrderOfAdmission) {
  Scheduler scheduler(few_slots());
  Sequence* a = scheduler.add(picture_of("a", 20), at_ms(0));
  Sequence* b = scheduler.add(picture_of("b", 20), at_ms(0));
  EXPECT_EQ("", step(scheduler)) << "a plan without rows is fine while something waits";
  EXPECT_EQ("", step(scheduler));
  EXPECT_EQ(a, scheduler.next_for_media());
  scheduler.give_media(*a, embedded());
  EXPECT_EQ(b, scheduler.next_for_media());
  EXPECT_EQ("a:0+20*", step(scheduler));
  scheduler.give_media(*b, embedded());
  EXPECT_EQ("a:20+1* b:0+20*", step(scheduler));
}

TEST(SchedulerMedia, NeedsNoRowsToBeAdmitted) {
  SchedulerOptions options = few_slots();
  options.token_budget = 131;
  Scheduler scheduler(options);
  scheduler.add(text_of("a", 130), at_ms(0));
  scheduler.add(picture_of("b", 20), at_ms(0));
  scheduler.add(text_of("c", 20), at_ms(0));
  EXPECT_EQ("a:0+128", step(scheduler)) << "3 rows are left";
  expect_load(scheduler, 2, 1, 8);
  EXPECT_EQ("a:128+2* c:0+20*", step(scheduler));
}

TEST(SchedulerMedia, WaitsForASlotLikeOthers) {
  SchedulerOptions options = few_slots();
  options.max_running = 1;
  Scheduler scheduler(options);
  scheduler.add(text_of("a", 20), at_ms(0));
  Sequence* b = scheduler.add(picture_of("b", 20), at_ms(0));
  scheduler.add(text_of("c", 20), at_ms(0));
  EXPECT_EQ("a:0+20*", step(scheduler));
  EXPECT_EQ(nullptr, scheduler.next_for_media());
  step(scheduler);
  step(scheduler);
  EXPECT_EQ("", step(scheduler));
  EXPECT_EQ(b, scheduler.next_for_media());
  EXPECT_EQ("", step(scheduler)) << "c has no slot";
}

TEST(SchedulerMedia, AbortAndDeadlineFreeWhatItHolds) {
  SchedulerOptions options = few_slots();
  options.max_running = 1;
  Scheduler scheduler(options);
  Sequence* a = scheduler.add(picture_of("a", 20), at_ms(0));
  Request late = picture_of("b", 30);
  late.deadline = at_ms(50);
  scheduler.add(late, at_ms(0));
  scheduler.add(text_of("c", 40), at_ms(0));
  EXPECT_EQ("", step(scheduler, at_ms(1)));
  scheduler.abort(*a);
  EXPECT_EQ("", step(scheduler, at_ms(2)));
  auto finished = scheduler.take_finished();
  ASSERT_EQ(1U, finished.size());
  EXPECT_EQ(FinishReason::kAborted, finished[0]->finish_reason);
  EXPECT_EQ(-1, finished[0]->slot);
  expect_load(scheduler, 1, 1, 0);
  EXPECT_EQ("b", scheduler.next_for_media()->request.id);
  EXPECT_EQ("c:0+40*", step(scheduler, at_ms(50)));
  finished = scheduler.take_finished();
  ASSERT_EQ(1U, finished.size());
  EXPECT_EQ(FinishReason::kDeadline, finished[0]->finish_reason);
  EXPECT_EQ(nullptr, scheduler.next_for_media());
  expect_load(scheduler, 1, 0, 3);
}

TEST(SchedulerMedia, FinishAllEndsWhoWaits) {
  Scheduler scheduler(few_slots());
  scheduler.add(picture_of("a", 20), at_ms(0));
  step(scheduler);
  scheduler.finish_all(FinishReason::kError, at_ms(1));
  EXPECT_EQ(1U, scheduler.take_finished().size());
  EXPECT_EQ(nullptr, scheduler.next_for_media());
  expect_load(scheduler, 0, 0, 0);
}

TEST(SchedulerMedia, PlaceholdersNeedTheirMedia) {
  Request request = text_of("a", 3);
  for (const auto& [id, name] : {std::pair<TokenId, std::string>{97, "image_token_id"}, {98, "video_token_id"}}) {
    request.prompt[1] = id;
    test::expect_error([&] { validate_request(request, few_slots()); }, ErrorCode::kInvalidArgument,
                       {"prompt[1] is " + std::to_string(id), name, "allowed: text"});
  }
  request.media = std::make_shared<const PromptMedia>();
  validate_request(request, few_slots());
}

TEST(SchedulerMediaDeathTest, IsGivenOnceAndBetweenSteps) {
  Scheduler scheduler(few_slots());
  Sequence* a = scheduler.add(picture_of("a", 20), at_ms(0));
  Sequence* b = scheduler.add(text_of("b", 20), at_ms(0));
  step(scheduler);
  EXPECT_DEATH(scheduler.give_media(*a, nullptr), "request a");
  EXPECT_DEATH(scheduler.give_media(*b, embedded()), "request b");
  scheduler.plan(at_ms(1));
  EXPECT_DEATH(scheduler.give_media(*a, embedded()), "under way");
}

}  // namespace
}  // namespace ferry
