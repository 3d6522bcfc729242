#include "runtime/server/vllm/inference_request.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/base/random_id.h"
#include "runtime/server/request_bounds.h"

namespace ferry::vllm {
namespace {

constexpr float kInferenceGreedyTemperature = 1e-5F;  // as VllmEngine's
constexpr FieldNames kInferenceNames{.num_choices = "sampling.num_sequences",
                                     .max_tokens = "stopping.max_new_tokens",
                                     .min_tokens = "stopping.min_new_tokens",
                                     .truncation = "truncate_prompt_tokens",
                                     .stop = "stopping.stop_strings"};

void check_served_model(const std::string& model, const Settings& settings) {
  const auto& names = settings.model_names;
  if (model.empty() || std::find(names.begin(), names.end(), model) != names.end()) return;
  throw Error(ErrorCode::kNotFound, "model is " + in_quotes(model) + "; allowed: " + in_quotes(names.front()) +
                                        (names.size() > 1 ? " and its other names" : ", or none"));
}

void read_cache_parameters(const ::vllm::KVCacheParameters& kv, GenerateFields& fields) {
  if (kv.has_kv_transfer_params())
    throw_invalid("kv.kv_transfer_params is given: there is no transfer of keys and values; allowed: none");
  if (kv.has_ec_transfer_params())
    throw_invalid("kv.ec_transfer_params is given: there is no transfer of pictures' embeddings; allowed: none");
  check_cache_salt("kv.cache_salt", kv.cache_salt());
  // What nobody has computed under a salt is computed anew.
  fields.cache_salt = kv.bypass_prefix_cache() ? random_id() : kv.cache_salt();
}

void read_inference_prompt(const ::vllm::GenerateRequest& message, GenerateFields& fields) {
  if (message.has_text()) {
    fields.prompt_field = "text";
    fields.text = message.text();
  } else if (message.has_token_ids()) {
    fields.prompt_field = "token_ids.ids";
    fields.ids = token_ids_of(fields.prompt_field, message.token_ids().ids());
  } else {
    throw_invalid("the request has no prompt, one of text and token_ids is needed");
  }
}

float given_or(float value, const std::optional<double>& otherwise, float last) {
  return value != 0.0F ? value : static_cast<float>(otherwise.value_or(last));
}

/// A greedy request has no use for what shapes a distribution.
void read_inference_distribution(const ::vllm::GenerateRequest& message, const GenerationDefaults& defaults,
                                 SamplingParams& sampling) {
  const ::vllm::RandomSampling& random = message.sampling();
  sampling.temperature = message.temperature();
  if (sampling.temperature >= 0.0F && sampling.temperature < kInferenceGreedyTemperature) sampling.temperature = 0.0F;
  sampling.top_p = given_or(random.top_p(), defaults.top_p, 1.0F);
  sampling.top_k = random.top_k() != 0 ? clamped(random.top_k()) : static_cast<int32_t>(defaults.top_k.value_or(0));
  sampling.top_k = std::max(sampling.top_k, 0);
  sampling.min_p = given_or(random.min_p(), defaults.min_p, 0.0F);
}

void read_decoding(const ::vllm::DecodingParameters& decoding, const GenerationDefaults& defaults, SamplingParams& sampling) {
  sampling.presence_penalty = decoding.presence_penalty();
  sampling.frequency_penalty = decoding.frequency_penalty();
  sampling.repetition_penalty = given_or(decoding.repetition_penalty(), defaults.repetition_penalty, 1.0F);
  for (const auto& [id, bias] : decoding.logit_bias()) sampling.logit_bias.push_back({.id = clamped(id), .bias = bias});
  sampling.allowed_token_ids = token_ids_of("decoding.allowed_token_ids", decoding.allowed_token_ids());
}

std::optional<Constraint> read_inference_constraint(const ::vllm::DecodingParameters& decoding) {
  using Kind = Constraint::Kind;
  const auto make = [&](Kind kind, const char* field, std::string_view text) {
    return Constraint{.kind = kind,
                      .field = std::string("decoding.") + field,
                      .text = text,
                      .choices = {decoding.choice().choices().begin(), decoding.choice().choices().end()}};
  };
  switch (decoding.structured_output_case()) {
    case ::vllm::DecodingParameters::kJson: return make(Kind::kSchema, "json", decoding.json());
    case ::vllm::DecodingParameters::kRegex: return make(Kind::kRegex, "regex", decoding.regex());
    case ::vllm::DecodingParameters::kGrammar: return make(Kind::kEbnf, "grammar", decoding.grammar());
    case ::vllm::DecodingParameters::kStructuralTag:
      return make(Kind::kStructuralTag, "structural_tag", decoding.structural_tag());
    case ::vllm::DecodingParameters::kChoice: return make(Kind::kChoices, "choice.choices", {});
    case ::vllm::DecodingParameters::kJsonObject:
      if (decoding.json_object()) return make(Kind::kObject, "json_object", {});
      break;
    case ::vllm::DecodingParameters::STRUCTURED_OUTPUT_NOT_SET: break;
  }
  return std::nullopt;
}

void read_stopping(const ::vllm::StoppingCriteria& stopping, GenerateFields& fields) {
  SamplingParams& sampling = fields.sampling;
  if (stopping.max_new_tokens() != 0) fields.max_tokens = stopping.max_new_tokens();
  sampling.min_tokens = clamped(stopping.min_new_tokens());
  sampling.stop_token_ids = token_ids_of("stopping.stop_token_ids", stopping.stop_token_ids());
  sampling.stop.assign(stopping.stop_strings().begin(), stopping.stop_strings().end());
  sampling.includes_stop = stopping.include_stop_strings();
  sampling.ignore_eos = stopping.ignore_eos();
}

/// How many of the likeliest tokens are told beside the one that is there.
int32_t num_candidates(const std::string& field, const ::vllm::CandidateTokens& candidates) {
  switch (candidates.select_case()) {
    case ::vllm::CandidateTokens::kTopN: return clamped(candidates.top_n());
    case ::vllm::CandidateTokens::kAll: return candidates.all() ? SamplingParams::kWholeVocabulary : 0;
    case ::vllm::CandidateTokens::kTokenIds:
      if (candidates.token_ids().ids().empty()) return 0;
      throw_invalid(field + ".token_ids is given: logprobs of chosen ids are not served; allowed: top_n, all");
    case ::vllm::CandidateTokens::SELECT_NOT_SET: break;
  }
  return 0;
}

void read_response_options(const ::vllm::ResponseOptions& response, SamplingParams& sampling) {
  if (response.has_output_candidates() && !response.output_logprobs())
    throw_invalid("response.output_candidates is given without output_logprobs; allowed: both, or neither");
  if (response.has_prompt_candidates() && !response.prompt_logprobs())
    throw_invalid("response.prompt_candidates is given without prompt_logprobs; allowed: both, or neither");
  if (response.output_logprobs())
    sampling.logprobs = num_candidates("response.output_candidates", response.output_candidates());
  if (response.prompt_logprobs())
    sampling.prompt_logprobs = num_candidates("response.prompt_candidates", response.prompt_candidates());
}

}  // namespace

GenerateFields read_inference_request(const ::vllm::GenerateRequest& message, const Settings& settings,
                                      const ServerLimits& limits) {
  check_request_id("request_id", message.request_id());
  check_served_model(message.model(), settings);
  check_stop_strings(kInferenceNames.stop, message.stopping().stop_strings(), limits);
  GenerateFields fields;
  read_inference_prompt(message, fields);
  read_inference_distribution(message, settings.defaults, fields.sampling);
  read_decoding(message.decoding(), settings.defaults, fields.sampling);
  read_stopping(message.stopping(), fields);
  read_response_options(message.response(), fields.sampling);
  read_cache_parameters(message.kv(), fields);
  fields.priority = message.priority();
  if (message.sampling().has_seed()) fields.seed = static_cast<uint64_t>(message.sampling().seed());
  fields.num_choices = std::max<int64_t>(message.sampling().num_sequences(), 1);
  if (message.truncate_prompt_tokens() != 0) fields.truncation = message.truncate_prompt_tokens();
  fields.constraint = read_inference_constraint(message.decoding());
  check_fields(fields, kInferenceNames, limits);
  return fields;
}

}  // namespace ferry::vllm
