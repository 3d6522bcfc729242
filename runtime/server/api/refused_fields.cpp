#include "runtime/server/api/refused_fields.h"

#include <string>

#include "runtime/server/api/api_error.h"

namespace ferry::api {
namespace {

/// Fields that ask for something by being there.
constexpr const char* kUnserved[] = {
    "suffix",
    "prompt_embeds",
    "logprob_token_ids",
    "repetition_detection",
    "kv_transfer_params",
    "ec_transfer_params",
    "chat_template",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "functions",
    "function_call",
    "audio",
    "web_search_options",
    "vllm_xargs",
    "guided_whitespace_pattern",
};
/// Fields that ask for something by being true.
constexpr const char* kUnservedFlags[] = {"use_beam_search", "watermarking", "return_weight_versions"};

void refuse_named(const std::string& name) { refuse(name, name + " is not supported."); }

bool is_empty(const ordered_json& value) { return value.is_structured() && value.empty(); }

void refuse_other_outputs(const RequestFields& fields) {
  for (const std::string& modality : fields.strings("modalities")) {
    if (modality != "text") refuse("modalities", "modalities has '" + modality + "'; allowed: 'text'");
  }
  const auto best_of = fields.integer("best_of");
  if (best_of && *best_of > fields.integer("n").value_or(1)) refuse_named("best_of");
}

}  // namespace

void refuse_fields(const RequestFields& fields, std::span<const char* const> names) {
  for (const char* name : names) {
    const ordered_json* value = fields.find(name);
    if (value != nullptr && *value != false && !is_empty(*value)) refuse_named(fields.path_of(name));
  }
}

void refuse_unserved(const RequestFields& fields) {
  refuse_fields(fields, kUnserved);
  for (const char* name : kUnservedFlags) {
    if (fields.flag(name, false)) refuse_named(name);
  }
  refuse_other_outputs(fields);
}

}  // namespace ferry::api
