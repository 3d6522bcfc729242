#include "runtime/server/openai/completion_request.h"

#include <algorithm>
#include <limits>

#include "runtime/base/json.h"
#include "runtime/server/api/api_error.h"

namespace ferry::api::openai {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;
constexpr std::size_t kPromptsMax = 1024;  // of one request

[[noreturn]] void refuse_empty() { refuse("prompt", "Either prompt or prompt_embeds must be provided and non-empty."); }

/// A list of ids, or nothing if `value` is none.
std::optional<std::vector<TokenId>> ids_of(const ordered_json& value) {
  if (!value.is_array()) return std::nullopt;
  std::vector<TokenId> ids;
  ids.reserve(value.size());
  for (const ordered_json& item : value) {
    const std::optional<TokenId> id = token_id_of(item);
    if (!id) return std::nullopt;
    ids.push_back(*id);
  }
  return ids;
}

CompletionPrompt prompt_of(const ordered_json& value) {
  if (value.is_string()) {
    auto text = value.get<std::string>();
    if (text.empty()) refuse_empty();
    return text;
  }
  std::optional<std::vector<TokenId>> ids = ids_of(value);
  if (!ids) refuse_form("prompt", "prompt is " + shown(value) + "; allowed: text, token ids, or a list of such prompts");
  if (ids->empty()) refuse_empty();
  return std::move(*ids);
}

std::vector<CompletionPrompt> read_prompts(const RequestFields& fields) {
  const ordered_json* value = fields.find("prompt");
  if (value == nullptr || (value->is_array() && value->empty())) refuse_empty();
  const bool is_list = value->is_array() && !value->front().is_number();
  if (!is_list) return {prompt_of(*value)};
  if (value->size() > kPromptsMax) {
    refuse("prompt", "prompt list length " + std::to_string(value->size()) + " exceeds the maximum allowed count of " +
                         std::to_string(kPromptsMax) + ".");
  }
  std::vector<CompletionPrompt> prompts;
  for (const ordered_json& item : *value) prompts.push_back(prompt_of(item));
  return prompts;
}

}  // namespace

CompletionRequest parse_completion(const ordered_json& body, const HttpRequest& request, const ApiSettings& settings) {
  const RequestFields fields(body);
  CompletionRequest completion;
  completion.prompts = read_prompts(fields);
  completion.generation = read_generation(fields, request, settings);
  GenerationFields& generation = completion.generation;
  completion.echo = fields.flag("echo", false);
  generation.adds_special_tokens = fields.flag("add_special_tokens", true);
  generation.max_tokens =
      fields.integer("max_tokens", completion.echo ? 0 : 1, std::numeric_limits<int32_t>::max()).value_or(kDefaultMaxTokens);
  generation.sampling.logprobs = read_num_logprobs(fields, "logprobs", settings);
  completion.asks_prompt_logprobs = generation.sampling.prompt_logprobs.has_value();
  if (completion.echo && !generation.sampling.prompt_logprobs)
    generation.sampling.prompt_logprobs = generation.sampling.logprobs;
  if (generation.max_tokens == 0 && !generation.sampling.prompt_logprobs)
    generation.sampling.prompt_logprobs = 0;  // who asks for no token has the prompt computed for its own sake
  check_min_tokens(generation);
  return completion;
}

}  // namespace ferry::api::openai
