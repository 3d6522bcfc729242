#include "runtime/server/answer_bytes.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using test::expect_error;

std::vector<Request> requests_of(std::size_t count, std::size_t num_prompt, int32_t max_tokens) {
  Request request;
  request.prompt.assign(num_prompt, 1);
  request.sampling.max_tokens = max_tokens;
  return std::vector<Request>(count, request);
}

TEST(AnswerBytes, GrowWithEveryFactor) {
  const AnswerBound bound{.most_bytes = 1, .vocab_size = 1000};
  std::vector<Request> requests = requests_of(1, 100, 10);
  const int64_t plain = answer_bytes(requests, bound);
  EXPECT_LT(plain, 10'000);
  requests.front().sampling.logprobs = 20;
  const int64_t with_logprobs = answer_bytes(requests, bound);
  EXPECT_GT(with_logprobs, plain + 10 * 21 * 100);
  requests.front().sampling.prompt_logprobs = 20;
  const int64_t with_both = answer_bytes(requests, bound);
  EXPECT_GT(with_both, with_logprobs + 100 * 21 * 100);
  requests.assign(7, requests.front());
  EXPECT_EQ(answer_bytes(requests, bound), 7 * with_both);
  requests.front().sampling.prompt_logprobs = SamplingParams::kWholeVocabulary;
  EXPECT_GT(answer_bytes(requests, bound), 7 * with_both + 100 * 900 * 100);
}

TEST(AnswerBytes, OfTheLargestCallFitTheirNumber) {
  std::vector<Request> requests = requests_of(1, 1 << 20, 1 << 20);
  requests.front().sampling.prompt_logprobs = requests.front().sampling.logprobs = SamplingParams::kWholeVocabulary;
  EXPECT_GT(answer_bytes(requests, {.most_bytes = 1, .vocab_size = 1 << 20}), int64_t{1} << 40);
}

TEST(AnswerBytes, AStreamCountsItsLargestPiece) {
  std::vector<Request> requests = requests_of(16, 100, 100'000);
  for (Request& request : requests) request.sampling.prompt_logprobs = 5;
  const AnswerBound stream{.most_bytes = 1 << 20, .vocab_size = 1000, .form = AnswerForm::kStream};
  EXPECT_EQ(answer_bytes(requests, stream), answer_bytes(std::span(requests).first(1), stream));
  bound_answer(requests, stream);
  EXPECT_EQ(requests.front().sampling.max_tokens, 100'000);
}

TEST(AnswerBytes, TokensThatNobodyAskedForGiveWay) {
  AnswerBound bound{.most_bytes = 100'000, .vocab_size = 1000};
  std::vector<Request> requests = requests_of(4, 10, 5000);
  expect_error([&] { bound_answer(requests, bound); }, ErrorCode::kInvalidArgument, {"--answer-bytes"});
  bound.may_shorten = true;
  bound_answer(requests, bound);
  EXPECT_NEAR(requests.back().sampling.max_tokens, 100'000 / 4 / 32, 20);
  EXPECT_LE(answer_bytes(requests, bound), bound.most_bytes);
  for (Request& request : requests) request.sampling.max_tokens = request.sampling.min_tokens = 5000;
  expect_error([&] { bound_answer(requests, bound); }, ErrorCode::kInvalidArgument, {"--answer-bytes"});
}

TEST(AnswerMemory, IsTakenByCallsUntilItIsFull) {
  const auto memory = std::make_shared<AnswerMemory>(100);
  auto first = std::make_unique<HeldAnswer>(memory, 80);
  HeldAnswer second(memory, 80);
  first->add(70);
  expect_error([&] { first->add(11); }, ErrorCode::kFailedPrecondition, {"--answer-bytes"});
  second.add(30);
  expect_error([&] { second.add(1); }, ErrorCode::kResourceExhausted, {"--total-answer-bytes"});
  second.give_back(10);
  second.add(10);
  first.reset();
  second.add(50);
  EXPECT_FALSE(second.was_large());
}

}  // namespace
}  // namespace ferry
