#include "runtime/schedule/sampling_params.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "runtime/base/error.h"

namespace ferry {
namespace {

using Change = std::function<void(SamplingParams&)>;

constexpr float kInfinite = std::numeric_limits<float>::infinity(), kNoNumber = std::numeric_limits<float>::quiet_NaN();
constexpr SamplingBounds kBounds{.vocab_size = 100, .num_prompt = 10, .max_completion = 20};

SamplingParams changed(const Change& change) {
  SamplingParams params;
  change(params);
  return params;
}

void validate_all(const SamplingParams& params, const SamplingBounds& bounds) {
  validate_sampling(params);
  validate_sampling(params, bounds);
}

/// The message begins with the field and its value and says what is allowed.
void expect_refused(const std::string& beginning, const Change& change, const SamplingBounds& bounds = kBounds) {
  try {
    validate_all(changed(change), bounds);
    ADD_FAILURE() << beginning << ": accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << message;
    EXPECT_EQ(message.substr(0, beginning.size()), beginning);
    EXPECT_NE(message.find("; allowed: "), std::string::npos) << message;
  }
}

void expect_taken(const Change& change, const SamplingBounds& bounds = kBounds) {
  EXPECT_NO_THROW(validate_all(changed(change), bounds));
}

TEST(SamplingParams, DefaultsPass) {
  expect_taken([](SamplingParams&) {});
}

TEST(SamplingParams, Numbers) {
  struct Range {
    const char* field;
    float SamplingParams::*member;
    std::vector<float> good, bad;
  };
  const float least = std::numeric_limits<float>::denorm_min(), most = std::numeric_limits<float>::max();
  const std::vector<Range> ranges{
      {"temperature", &SamplingParams::temperature, {0.0F, least, most}, {-0.1F, kNoNumber, kInfinite, -kInfinite}},
      {"top_p", &SamplingParams::top_p, {least, 1.0F}, {0.0F, -0.5F, 1.0001F, kNoNumber, kInfinite}},
      {"min_p", &SamplingParams::min_p, {0.0F, 1.0F}, {-0.1F, 1.1F, kNoNumber}},
      {"repetition_penalty", &SamplingParams::repetition_penalty, {least, most}, {0.0F, -1.0F, kInfinite, kNoNumber}},
      {"presence_penalty", &SamplingParams::presence_penalty, {-2.0F, 2.0F}, {-2.1F, 2.1F, kNoNumber}},
      {"frequency_penalty", &SamplingParams::frequency_penalty, {-2.0F, 2.0F}, {-2.1F, kInfinite, kNoNumber}}};
  for (const Range& range : ranges) {
    for (const float value : range.good) expect_taken([&](SamplingParams& p) { p.*range.member = value; });
    for (const float value : range.bad)
      expect_refused(range.field + std::string(" is ") + std::to_string(value),
                     [&](SamplingParams& p) { p.*range.member = value; });
  }
  expect_taken([](SamplingParams& p) { p.top_k = std::numeric_limits<int32_t>::max(); });
  expect_refused("top_k is -1", [](SamplingParams& p) { p.top_k = -1; });
}

TEST(SamplingParams, Lengths) {
  expect_refused("max_tokens is 0", [](SamplingParams& p) { p.max_tokens = 0; });
  expect_refused("max_tokens is -1", [](SamplingParams& p) { p.max_tokens = -1, p.prompt_logprobs = 0; });
  expect_taken([](SamplingParams& p) { p.max_tokens = 0, p.prompt_logprobs = 0; });
  expect_taken([](SamplingParams& p) { p.max_tokens = 7, p.min_tokens = 7; });
  expect_refused("min_tokens is 8; allowed: 0 to max_tokens, which is 7",
                 [](SamplingParams& p) { p.max_tokens = 7, p.min_tokens = 8; });
  expect_refused("min_tokens is -1", [](SamplingParams& p) { p.min_tokens = -1; });
}

TEST(SamplingParams, Ids) {
  expect_taken([](SamplingParams& p) {
    p.stop_token_ids = p.allowed_token_ids = {0, 99};
    p.logit_bias = {{0, -100.0F}, {99, 100.0F}};
    p.bad_words = {{0}, {99, 99}};
  });
  expect_refused("stop_token_ids[1] is -2", [](SamplingParams& p) { p.stop_token_ids = {4, -2}; });
  expect_refused("stop_token_ids[0] is 100", [](SamplingParams& p) { p.stop_token_ids = {100}; });
  expect_refused("allowed_token_ids[0] is -1", [](SamplingParams& p) { p.allowed_token_ids = {-1}; });
  expect_refused("allowed_token_ids[2] is 100", [](SamplingParams& p) { p.allowed_token_ids = {1, 2, 100}; });
  expect_refused("logit_bias[1].id is 100", [](SamplingParams& p) { p.logit_bias = {{1, 0.0F}, {100, 0.0F}}; });
  expect_refused("logit_bias[0].id is -1", [](SamplingParams& p) { p.logit_bias = {{-1, 0.0F}}; });
  expect_refused("logit_bias[0].bias is 100.5", [](SamplingParams& p) { p.logit_bias = {{1, 100.5F}}; });
  expect_refused("logit_bias[0].bias is nan", [](SamplingParams& p) { p.logit_bias = {{1, kNoNumber}}; });
  expect_refused("logit_bias has id 7 twice", [](SamplingParams& p) { p.logit_bias = {{7, 1.0F}, {3, 0.0F}, {7, 2.0F}}; });
  expect_refused("bad_words[1] is empty", [](SamplingParams& p) { p.bad_words = {{1}, {}}; });
  expect_refused("bad_words[0][1] is -3", [](SamplingParams& p) { p.bad_words = {{1, -3}}; });
  expect_refused("bad_words[1][0] is 100", [](SamplingParams& p) { p.bad_words = {{1}, {100}}; });
}

TEST(SamplingParams, Counts) {
  const SamplingBounds large{.vocab_size = 5000, .num_prompt = 1, .max_completion = 1};
  const auto biases = [](int num) {
    return [num](SamplingParams& p) {
      for (TokenId id = 0; id < num; ++id) p.logit_bias.push_back({id, 1.0F});
    };
  };
  expect_taken(biases(1024), large);
  expect_refused("logit_bias has 1025 entries", biases(1025), large);
  expect_taken([](SamplingParams& p) { p.bad_words.assign(1024, std::vector<TokenId>(64, 1)); });
  expect_refused("bad_words has 1025 entries", [](SamplingParams& p) { p.bad_words.assign(1025, {1}); });
  expect_refused("bad_words[1] has 65 entries", [](SamplingParams& p) { p.bad_words = {{1}, std::vector<TokenId>(65, 1)}; });
  expect_taken([](SamplingParams& p) { p.allowed_token_ids.assign(100, 1); });
  expect_refused("allowed_token_ids has 101 entries", [](SamplingParams& p) { p.allowed_token_ids.assign(101, 1); });
  expect_taken([](SamplingParams& p) { p.stop.assign(1024, "a"), p.stop_token_ids.assign(1024, 1); });
  expect_refused("stop has 1025 entries", [](SamplingParams& p) { p.stop.assign(1025, "a"); });
  expect_refused("stop_token_ids has 1025 entries", [](SamplingParams& p) { p.stop_token_ids.assign(1025, 1); });
  expect_refused("stop[1] is empty", [](SamplingParams& p) { p.stop = {"end", ""}; });
}

TEST(SamplingParams, Logprobs) {
  for (const auto member : {&SamplingParams::logprobs, &SamplingParams::prompt_logprobs}) {
    const std::string field = member == &SamplingParams::logprobs ? "logprobs" : "prompt_logprobs";
    for (const int32_t good : {0, 1, 100, SamplingParams::kWholeVocabulary})
      expect_taken([&](SamplingParams& p) { p.*member = good; });
    expect_refused(field + " is -2", [&](SamplingParams& p) { p.*member = -2; });
    expect_refused(field + " is 101; allowed: 0 to 100", [&](SamplingParams& p) { p.*member = 101; });
    const SamplingBounds much{.vocab_size = 1 << 18, .num_prompt = 32, .max_completion = 32};
    expect_taken([&](SamplingParams& p) { p.*member = -1; }, much);
    expect_taken([&](SamplingParams& p) { p.*member = 20; },
                 {.vocab_size = 1 << 18, .num_prompt = 1 << 18, .max_completion = 1 << 18});
    const SamplingBounds more{.vocab_size = 1 << 18, .num_prompt = 33, .max_completion = 33};
    expect_refused(
        field + " is -1 for 33 tokens; allowed: at most 32 tokens", [&](SamplingParams& p) { p.*member = -1; }, more);
  }
}

}  // namespace
}  // namespace ferry
