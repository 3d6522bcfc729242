#include "runtime/server/vllm/engine_request.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/server/request_bounds.h"

namespace ferry::vllm {
namespace {

namespace wire = ::vllm::grpc::engine;
namespace common = ::smg::grpc::common;

constexpr float kEngineGreedyTemperature = 1e-5F;  // below it a draw is the likeliest token (vLLM: _SAMPLING_EPS)
constexpr FieldNames kEngineNames{.num_choices = "sampling_params.n",
                                  .max_tokens = "sampling_params.max_tokens",
                                  .min_tokens = "sampling_params.min_tokens",
                                  .truncation = "sampling_params.truncate_prompt_tokens",
                                  .stop = "sampling_params.stop"};

void refuse_unserved_inputs(const wire::GenerateRequest& message) {
  if (message.has_mm_inputs() || message.extra_mm_inputs_size() > 0) {
    throw_invalid(std::string(message.has_mm_inputs() ? "mm_inputs" : "extra_mm_inputs") +
                  " is given: pictures that somebody else has decoded are not served; allowed: media_refs");
  }
  if (message.has_kv_transfer_params()) throw_invalid("kv_transfer_params is given: there is no transfer of keys and values");
  if (!message.kv_transfer_params_json().empty())
    throw_invalid("kv_transfer_params_json is given: there is no transfer of keys and values; allowed: none");
  if (message.data_parallel_rank() != 0)
    throw_invalid("data_parallel_rank is " + std::to_string(message.data_parallel_rank()) + "; allowed: 0, the only one");
}

void read_pictures(const wire::GenerateRequest& message, GenerateFields& fields) {
  const auto& items = message.media_refs().items();
  for (int i = 0; i < items.size(); ++i) {
    const std::string where = "media_refs.items[" + std::to_string(i) + "]";
    if (items[i].modality() != common::IMAGE && items[i].modality() != common::MODALITY_UNSPECIFIED)
      throw_invalid(where + ".modality is " + std::to_string(items[i].modality()) + "; allowed: 1 (pictures)");
    if (items[i].url().empty()) throw_invalid(where + ".url is empty; allowed: a picture's");
    fields.picture_urls.push_back(items[i].url());
  }
}

void read_prompt(const wire::GenerateRequest& message, GenerateFields& fields) {
  if (message.has_text()) {
    fields.prompt_field = "text";
    fields.text = message.text();
  } else if (message.has_tokenized()) {
    fields.prompt_field = "tokenized.input_ids";
    fields.ids = token_ids_of(fields.prompt_field, message.tokenized().input_ids());
  } else {
    throw_invalid("the request has no input, one of tokenized and text is needed");
  }
}

void read_engine_distribution(const wire::SamplingParams& params, SamplingParams& sampling) {
  sampling.temperature = params.has_temperature() ? params.temperature() : 1.0F;
  if (sampling.temperature >= 0.0F && sampling.temperature < kEngineGreedyTemperature) sampling.temperature = 0.0F;
  if (params.top_p() != 0.0F) sampling.top_p = params.top_p();
  sampling.top_k = clamped(params.top_k());
  sampling.min_p = params.min_p();
  sampling.frequency_penalty = params.frequency_penalty();
  sampling.presence_penalty = params.presence_penalty();
  if (params.repetition_penalty() != 0.0F) sampling.repetition_penalty = params.repetition_penalty();
  for (const auto& [id, bias] : params.logit_bias()) sampling.logit_bias.push_back({.id = id, .bias = bias});
}

void read_engine_ends(const wire::SamplingParams& params, GenerateFields& fields) {
  SamplingParams& sampling = fields.sampling;
  if (params.has_max_tokens()) fields.max_tokens = params.max_tokens();
  sampling.min_tokens = clamped(params.min_tokens());
  sampling.stop.assign(params.stop().begin(), params.stop().end());
  sampling.stop_token_ids = token_ids_of("sampling_params.stop_token_ids", params.stop_token_ids());
  sampling.shows_special = !params.skip_special_tokens();
  sampling.ignore_eos = params.ignore_eos();
  sampling.includes_stop = params.include_stop_str_in_output();
}

std::optional<Constraint> read_engine_constraint(const wire::SamplingParams& params) {
  using Kind = Constraint::Kind;
  const auto make = [&](Kind kind, const char* field, std::string_view text) {
    return Constraint{.kind = kind,
                      .field = std::string("sampling_params.") + field,
                      .text = text,
                      .choices = {params.choice().choices().begin(), params.choice().choices().end()},
                      .holds_in_thought = params.grammar_from_first_token()};
  };
  switch (params.constraint_case()) {
    case wire::SamplingParams::kJsonSchema: return make(Kind::kSchema, "json_schema", params.json_schema());
    case wire::SamplingParams::kRegex: return make(Kind::kRegex, "regex", params.regex());
    case wire::SamplingParams::kGrammar: return make(Kind::kEbnf, "grammar", params.grammar());
    case wire::SamplingParams::kStructuralTag: return make(Kind::kStructuralTag, "structural_tag", params.structural_tag());
    case wire::SamplingParams::kChoice: return make(Kind::kChoices, "choice.choices", {});
    case wire::SamplingParams::kJsonObject:
      if (params.json_object()) return make(Kind::kObject, "json_object", {});
      break;
    case wire::SamplingParams::CONSTRAINT_NOT_SET: break;
  }
  return std::nullopt;
}

}  // namespace

GenerateFields read_engine_request(const wire::GenerateRequest& message, const ServerLimits& limits) {
  check_request_id("request_id", message.request_id());
  refuse_unserved_inputs(message);
  const wire::SamplingParams& params = message.sampling_params();
  check_stop_strings(kEngineNames.stop, params.stop(), limits);
  GenerateFields fields;
  read_prompt(message, fields);
  read_pictures(message, fields);
  read_engine_distribution(params, fields.sampling);
  read_engine_ends(params, fields);
  fields.num_choices = std::max<int64_t>(params.n(), 1);
  if (params.has_logprobs()) fields.sampling.logprobs = params.logprobs();
  if (params.has_prompt_logprobs()) fields.sampling.prompt_logprobs = params.prompt_logprobs();
  if (params.has_seed()) fields.seed = static_cast<uint64_t>(int64_t{params.seed()});
  if (params.has_truncate_prompt_tokens()) fields.truncation = params.truncate_prompt_tokens();
  fields.constraint = read_engine_constraint(params);
  check_fields(fields, kEngineNames, limits);
  return fields;
}

}  // namespace ferry::vllm
