#include "runtime/server/vllm/inference_request.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace ferry::vllm {
namespace {

const ServerLimits kInferenceLimits{.prompt_bytes = 64, .stop_strings = 2, .stop_bytes = 8};

Settings settings_of_demo() {
  Settings settings{.model_names = {"demo", "other"}, .model_path = "", .defaults = {}};
  settings.defaults.temperature = 0.7;
  settings.defaults.top_p = 0.8;
  settings.defaults.top_k = 20;
  return settings;
}

::vllm::GenerateRequest text_request() {
  ::vllm::GenerateRequest message;
  message.set_text("The kernel");
  return message;
}

GenerateFields read(const ::vllm::GenerateRequest& message) {
  return read_inference_request(message, settings_of_demo(), kInferenceLimits);
}

void expect_inference_refused(const ::vllm::GenerateRequest& message, const std::vector<std::string>& parts,
                              ErrorCode code = ErrorCode::kInvalidArgument) {
  test::expect_error([&] { read(message); }, code, parts);
}

TEST(VllmInferenceRequest, NothingGivenIsGreedyWithTheModelsDefaults) {
  const ::vllm::GenerateRequest message = text_request();
  const GenerateFields fields = read(message);
  EXPECT_EQ(fields.text, "The kernel");
  EXPECT_EQ(fields.sampling.temperature, 0.0F);
  EXPECT_EQ(fields.sampling.top_p, 0.8F);
  EXPECT_EQ(fields.sampling.top_k, 20);
  EXPECT_EQ(fields.sampling.repetition_penalty, 1.0F);
  EXPECT_FALSE(fields.max_tokens || fields.seed || fields.truncation || fields.constraint);
  EXPECT_FALSE(fields.sampling.logprobs || fields.sampling.prompt_logprobs);
  EXPECT_FALSE(fields.sampling.shows_special);
  EXPECT_TRUE(fields.cache_salt.empty());
}

TEST(VllmInferenceRequest, EveryFieldIsRead) {
  ::vllm::GenerateRequest message;
  message.mutable_token_ids()->add_ids(5);
  message.set_model("other");
  message.set_temperature(0.5F);
  message.mutable_sampling()->set_num_sequences(2);
  message.mutable_sampling()->set_top_k(3);
  message.mutable_sampling()->set_top_p(0.25F);
  message.mutable_sampling()->set_min_p(0.125F);
  message.mutable_sampling()->set_seed(11);
  ::vllm::DecodingParameters& decoding = *message.mutable_decoding();
  decoding.set_presence_penalty(0.5F);
  decoding.set_frequency_penalty(-0.5F);
  decoding.set_repetition_penalty(1.25F);
  (*decoding.mutable_logit_bias())[6] = 2.0F;
  decoding.add_allowed_token_ids(6);
  decoding.set_json("{}");
  message.mutable_stopping()->set_max_new_tokens(9);
  message.mutable_stopping()->set_min_new_tokens(2);
  message.mutable_stopping()->add_stop_token_ids(8);
  message.mutable_stopping()->add_stop_strings("end");
  message.mutable_stopping()->set_include_stop_strings(true);
  message.mutable_stopping()->set_ignore_eos(true);
  message.mutable_response()->set_output_logprobs(true);
  message.mutable_response()->mutable_output_candidates()->set_all(true);
  message.mutable_response()->set_prompt_logprobs(true);
  message.mutable_response()->mutable_prompt_candidates()->set_top_n(4);
  message.mutable_kv()->set_cache_salt("mine");
  message.set_priority(-3);
  message.set_truncate_prompt_tokens(7);
  const GenerateFields fields = read(message);
  EXPECT_EQ(fields.ids, (std::vector<TokenId>{5}));
  EXPECT_EQ(fields.num_choices, 2);
  EXPECT_EQ(fields.sampling.top_k, 3);
  EXPECT_EQ(fields.sampling.top_p, 0.25F);
  EXPECT_EQ(fields.sampling.min_p, 0.125F);
  EXPECT_EQ(fields.seed, 11U);
  EXPECT_EQ(fields.sampling.presence_penalty, 0.5F);
  EXPECT_EQ(fields.sampling.frequency_penalty, -0.5F);
  EXPECT_EQ(fields.sampling.repetition_penalty, 1.25F);
  ASSERT_EQ(fields.sampling.logit_bias.size(), 1U);
  EXPECT_EQ(fields.sampling.allowed_token_ids, (std::vector<TokenId>{6}));
  ASSERT_TRUE(fields.constraint);
  EXPECT_EQ(fields.constraint->kind, Constraint::Kind::kSchema);
  EXPECT_EQ(fields.max_tokens, 9);
  EXPECT_EQ(fields.sampling.min_tokens, 2);
  EXPECT_EQ(fields.sampling.stop_token_ids, (std::vector<TokenId>{8}));
  EXPECT_EQ(fields.sampling.stop, (std::vector<std::string>{"end"}));
  EXPECT_TRUE(fields.sampling.includes_stop);
  EXPECT_TRUE(fields.sampling.ignore_eos);
  EXPECT_EQ(fields.sampling.logprobs, SamplingParams::kWholeVocabulary);
  EXPECT_EQ(fields.sampling.prompt_logprobs, 4);
  EXPECT_EQ(fields.cache_salt, "mine");
  EXPECT_EQ(fields.priority, -3);
  EXPECT_EQ(fields.truncation, 7);
}

TEST(VllmInferenceRequest, WhoPassesTheCacheByHasASaltThatNobodyElseHas) {
  ::vllm::GenerateRequest message = text_request();
  message.mutable_kv()->set_bypass_prefix_cache(true);
  const std::string salt = read(message).cache_salt;
  EXPECT_FALSE(salt.empty());
  EXPECT_NE(read(message).cache_salt, salt);
}

TEST(VllmInferenceRequest, WhatIsWrongOrNotServedIsRefusedByName) {
  expect_inference_refused({}, {"no prompt"});
  ::vllm::GenerateRequest message = text_request();
  message.set_model("nobody");
  expect_inference_refused(message, {"model is 'nobody'"}, ErrorCode::kNotFound);
  message = text_request();
  message.mutable_kv()->mutable_kv_transfer_params();
  expect_inference_refused(message, {"kv.kv_transfer_params"});
  message = text_request();
  message.mutable_kv()->mutable_ec_transfer_params();
  expect_inference_refused(message, {"kv.ec_transfer_params"});
  message = text_request();
  message.mutable_response()->set_output_logprobs(true);
  message.mutable_response()->mutable_output_candidates()->mutable_token_ids()->add_ids(1);
  expect_inference_refused(message, {"response.output_candidates.token_ids"});
  message = text_request();
  message.mutable_response()->mutable_prompt_candidates()->set_top_n(1);
  expect_inference_refused(message, {"response.prompt_candidates", "prompt_logprobs"});
  message = text_request();
  message.mutable_sampling()->set_num_sequences(2);
  expect_inference_refused(message, {"sampling.num_sequences is 2"});
  message = text_request();
  message.mutable_stopping()->set_max_new_tokens(1);
  message.mutable_stopping()->set_min_new_tokens(2);
  expect_inference_refused(message, {"stopping.min_new_tokens is 2"});
}

}  // namespace
}  // namespace ferry::vllm
