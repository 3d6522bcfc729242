#include "runtime/server/vllm/engine_request.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/expect_error.h"

namespace ferry::vllm {
namespace {

namespace wire = ::vllm::grpc::engine;

const ServerLimits kEngineLimits{.prompt_bytes = 64, .pictures = 2, .stop_strings = 2, .stop_bytes = 8};

wire::GenerateRequest request_of_ids() {
  wire::GenerateRequest message;
  message.mutable_tokenized()->add_input_ids(7);
  message.mutable_tokenized()->add_input_ids(9);
  return message;
}

void expect_engine_refused(const wire::GenerateRequest& message, const std::vector<std::string>& parts) {
  test::expect_error([&] { read_engine_request(message, kEngineLimits); }, ErrorCode::kInvalidArgument, parts);
}

TEST(VllmEngineRequest, WhatIsNotGivenHasVllmsDefaults) {
  const GenerateFields fields = read_engine_request(request_of_ids(), kEngineLimits);
  EXPECT_EQ(fields.ids, (std::vector<TokenId>{7, 9}));
  EXPECT_EQ(fields.sampling.temperature, 1.0F);
  EXPECT_EQ(fields.sampling.top_p, 1.0F);
  EXPECT_EQ(fields.sampling.top_k, 0);
  EXPECT_EQ(fields.sampling.repetition_penalty, 1.0F);
  EXPECT_EQ(fields.num_choices, 1);
  EXPECT_FALSE(fields.max_tokens || fields.seed || fields.truncation || fields.constraint || fields.text);
  EXPECT_FALSE(fields.sampling.logprobs || fields.sampling.prompt_logprobs);
  EXPECT_TRUE(fields.sampling.shows_special);
  EXPECT_EQ(step_of(fields, {}).work, PromptWork::kText);
}

TEST(VllmEngineRequest, EveryFieldIsRead) {
  wire::GenerateRequest message = request_of_ids();
  message.set_text("on");
  wire::SamplingParams& params = *message.mutable_sampling_params();
  params.set_temperature(0.5F);
  params.set_top_p(0.25F);
  params.set_top_k(UINT32_MAX);
  params.set_min_p(0.125F);
  params.set_frequency_penalty(0.75F);
  params.set_presence_penalty(-0.5F);
  params.set_repetition_penalty(1.5F);
  params.set_max_tokens(13);
  params.set_min_tokens(3);
  params.add_stop("end");
  params.add_stop_token_ids(17);
  params.set_skip_special_tokens(true);
  params.set_ignore_eos(true);
  params.set_n(3);
  params.set_logprobs(-1);
  params.set_prompt_logprobs(0);
  params.set_seed(-2);
  params.set_include_stop_str_in_output(true);
  (*params.mutable_logit_bias())[33] = -7.0F;
  params.set_truncate_prompt_tokens(-1);
  params.set_grammar_from_first_token(true);
  params.set_regex("a+");
  const GenerateFields fields = read_engine_request(message, kEngineLimits);
  EXPECT_EQ(fields.text, "on");
  EXPECT_EQ(fields.sampling.temperature, 0.5F);
  EXPECT_EQ(fields.sampling.top_p, 0.25F);
  EXPECT_EQ(fields.sampling.top_k, std::numeric_limits<int32_t>::max());
  EXPECT_EQ(fields.sampling.min_p, 0.125F);
  EXPECT_EQ(fields.sampling.frequency_penalty, 0.75F);
  EXPECT_EQ(fields.sampling.presence_penalty, -0.5F);
  EXPECT_EQ(fields.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(fields.max_tokens, 13);
  EXPECT_EQ(fields.sampling.min_tokens, 3);
  EXPECT_EQ(fields.sampling.stop, (std::vector<std::string>{"end"}));
  EXPECT_EQ(fields.sampling.stop_token_ids, (std::vector<TokenId>{17}));
  EXPECT_FALSE(fields.sampling.shows_special);
  EXPECT_TRUE(fields.sampling.ignore_eos);
  EXPECT_EQ(fields.num_choices, 3);
  EXPECT_EQ(fields.sampling.logprobs, SamplingParams::kWholeVocabulary);
  EXPECT_EQ(fields.sampling.prompt_logprobs, 0);
  EXPECT_EQ(fields.seed, UINT64_MAX - 1);
  EXPECT_TRUE(fields.sampling.includes_stop);
  ASSERT_EQ(fields.sampling.logit_bias.size(), 1U);
  EXPECT_EQ(fields.sampling.logit_bias[0].id, 33);
  EXPECT_EQ(fields.truncation, -1);
  ASSERT_TRUE(fields.constraint);
  EXPECT_EQ(fields.constraint->kind, Constraint::Kind::kRegex);
  EXPECT_EQ(fields.constraint->text, "a+");
  EXPECT_TRUE(fields.constraint->holds_in_thought);
  EXPECT_EQ(step_of(fields, {}).work, PromptWork::kText) << "the grammar is another step";
}

TEST(VllmEngineRequest, ConstraintsAreToldApart) {
  using Kind = Constraint::Kind;
  wire::GenerateRequest message = request_of_ids();
  wire::SamplingParams& params = *message.mutable_sampling_params();
  const auto kind = [&] { return read_engine_request(message, kEngineLimits).constraint->kind; };
  params.set_json_schema("{}");
  EXPECT_EQ(kind(), Kind::kSchema);
  params.set_grammar("root ::= \"a\"");
  EXPECT_EQ(kind(), Kind::kEbnf);
  params.set_structural_tag("{}");
  EXPECT_EQ(kind(), Kind::kStructuralTag);
  params.set_json_object(true);
  EXPECT_EQ(kind(), Kind::kObject);
  params.mutable_choice()->add_choices("yes");
  EXPECT_EQ(kind(), Kind::kChoices);
  EXPECT_EQ(read_engine_request(message, kEngineLimits).constraint->choices, (std::vector<std::string>{"yes"}));
  params.set_json_object(false);
  EXPECT_FALSE(read_engine_request(message, kEngineLimits).constraint);
}

TEST(VllmEngineRequest, WhatIsNotServedIsRefusedByName) {
  wire::GenerateRequest message = request_of_ids();
  message.mutable_mm_inputs();
  expect_engine_refused(message, {"mm_inputs"});
  message = request_of_ids();
  message.add_extra_mm_inputs();
  expect_engine_refused(message, {"extra_mm_inputs"});
  message = request_of_ids();
  message.mutable_kv_transfer_params();
  expect_engine_refused(message, {"kv_transfer_params"});
  message = request_of_ids();
  message.set_kv_transfer_params_json("{}");
  expect_engine_refused(message, {"kv_transfer_params_json"});
  message = request_of_ids();
  message.set_data_parallel_rank(1);
  expect_engine_refused(message, {"data_parallel_rank is 1"});
  message = request_of_ids();
  message.mutable_media_refs()->add_items()->set_modality(::smg::grpc::common::VIDEO);
  expect_engine_refused(message, {"media_refs.items[0].modality is 3"});
}

TEST(VllmEngineRequest, WhatIsWrongIsRefusedByName) {
  expect_engine_refused({}, {"no input"});
  wire::GenerateRequest message = request_of_ids();
  message.mutable_tokenized()->add_input_ids(1U << 31);
  expect_engine_refused(message, {"tokenized.input_ids[2] is 2147483648"});
  message.set_text(std::string(65, 'x'));
  expect_engine_refused(message, {"text has 65 bytes", "64"});
  message = request_of_ids();
  message.set_request_id("a b");
  expect_engine_refused(message, {"request_id", "position 1"});
  message = request_of_ids();
  wire::SamplingParams& params = *message.mutable_sampling_params();
  params.set_n(129);
  expect_engine_refused(message, {"sampling_params.n is 129", "128"});
  params.set_n(2);
  params.set_temperature(0);
  expect_engine_refused(message, {"sampling_params.n is 2"});
  params.set_n(1);
  params.set_min_tokens(4);
  params.set_max_tokens(3);
  expect_engine_refused(message, {"sampling_params.min_tokens is 4", "sampling_params.max_tokens"});
  params.set_min_tokens(0);
  params.set_truncate_prompt_tokens(0);
  expect_engine_refused(message, {"sampling_params.truncate_prompt_tokens is 0"});
  params.set_truncate_prompt_tokens(1);
  params.add_stop("123456789");
  expect_engine_refused(message, {"sampling_params.stop[0] has 9 bytes"});
  params.clear_stop();
  for (int i = 0; i < 3; ++i) message.mutable_media_refs()->add_items()->set_url("data:x");
  expect_engine_refused(message, {"3", "pictures"});
}

}  // namespace
}  // namespace ferry::vllm
