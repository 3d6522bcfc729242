#pragma once

#include <string>
#include <vector>

#include "runtime/server/api/prompt_making.h"

namespace ferry::api::openai {

/// POST /v1/completions. Choice k of prompt p has the index p * num_choices + k.
struct CompletionRequest {
  GenerationFields generation;
  std::vector<CompletionPrompt> prompts;  // at least one
  bool asks_prompt_logprobs = false;      // as a list of their own
  bool echo = false;                      // the prompt's text comes before the completion's, its logprobs likewise
};

/// Throws ApiError.
CompletionRequest parse_completion(const ordered_json& body, const HttpRequest& request, const ApiSettings& settings);

}  // namespace ferry::api::openai
