#include <string>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/schedule/sampling_params.h"
#include "runtime/server/anthropic/message_request.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/batch/batch_line.h"
#include "runtime/server/front/call_traits.h"
#include "runtime/server/front/prompt_pieces.h"
#include "runtime/server/http/json_limits.h"
#include "runtime/server/openai/chat_request.h"
#include "runtime/server/openai/completion_request.h"
#include "runtime/server/openai/responses_request.h"
#include "tests/fuzz/targets.h"

// Bodies of OpenAI's API and of Anthropic's, and lines of batch files.

namespace ferry::fuzz {
namespace {

const api::ApiSettings& small_settings() {
  static const api::ApiSettings settings = [] {
    api::ApiSettings made;
    made.model_names = {"small"};
    made.context_length = 512;
    made.vocab_size = 1024;
    made.limits.prompt_bytes = 4096;
    made.limits.http_json_values = 4096;
    return made;
  }();
  return settings;
}

void check_generation(const api::GenerationFields& fields) {
  SamplingParams sampling = fields.sampling;
  FERRY_CHECK(!fields.max_tokens || *fields.max_tokens >= 0);
  sampling.max_tokens = 512;
  sampling.min_tokens = 0;
  validate_sampling(sampling);
  FERRY_CHECK(fields.num_choices >= 1 && !fields.request_id.empty());
}

void read_completion(const api::ordered_json& body, const HttpRequest& request) {
  const api::openai::CompletionRequest completion = api::openai::parse_completion(body, request, small_settings());
  FERRY_CHECK(!completion.prompts.empty());
  check_generation(completion.generation);
}

void check_conversation(const api::Conversation& conversation) {
  FERRY_CHECK(!conversation.prompt.input.messages.empty());
  for (const auto& message : conversation.prompt.input.messages) FERRY_CHECK(message.at("role").is_string());
  check_generation(conversation.generation);
}

void read_chat(const api::ordered_json& body, const HttpRequest& request) {
  check_conversation(api::openai::parse_chat(body, request, small_settings()));
}

/// Runs `read` over the body; what is wrong with it is told as JSON, whatever it holds.
template <class Read>
void read_body_of(std::string_view text, Read&& read) {
  try {
    read(api::read_body(text, small_settings().limits));
  } catch (const api::ApiError& error) {
    FERRY_CHECK(error.status() >= 400 && error.json().starts_with("{\"error\":{\"message\":"));
  }
}

}  // namespace

/// The first byte tells which route's body it is.
void read_api_body(Input input) {
  if (input.empty()) return;
  static const HttpRequest request;
  read_body_of(text_of(input).substr(1), [&](const api::ordered_json& body) {
    if (input[0] % 2 == 1) {
      read_completion(body, request);
    } else {
      read_chat(body, request);
    }
  });
}

/// A body of Anthropic's Messages.
void read_message_body(Input input) {
  static const HttpRequest request;
  read_body_of(text_of(input), [&](const api::ordered_json& body) {
    check_conversation(api::anthropic::parse_message(body, request, small_settings()).conversation);
  });
}

/// A body of OpenAI's Responses.
void read_responses_body(Input input) {
  static const HttpRequest request;
  read_body_of(text_of(input), [&](const api::ordered_json& body) {
    const api::openai::ResponsesRequest read = api::openai::parse_responses(body, request, small_settings());
    check_conversation(read.conversation);
    FERRY_CHECK(read.echoed.is_object());
  });
}

/// A body of any API, as a front reads it: whatever it is it has traits, and the same ones again.
void read_call_traits(Input input) {
  static const HttpRequest head;
  const JsonLimits limits = model_json_limits(small_settings().limits);
  const CallTraits traits = http_call_traits(head, text_of(input), limits);
  FERRY_CHECK(traits.beginnings.size() <= PromptPieces::kMaxPieces);
  FERRY_CHECK(traits.beginnings == http_call_traits(head, text_of(input), limits).beginnings);
}

/// As a line of requests, whatever it holds: what it becomes in the file of answers is a line, and is known there again. And as
/// a line of answers, which it is or is not.
void read_batch_lines(Input input) {
  const auto read = batch::read_batch_line(text_of(input), 7, small_settings().limits);
  const auto* request = std::get_if<batch::BatchRequest>(&read);
  const std::string line = request != nullptr ? batch::answer_line(*request, "r", {.status = 200, .body = request->body})
                                              : batch::complaint_line(std::get<batch::BatchComplaint>(read));
  FERRY_CHECK(line.find('\n') == std::string::npos && batch::may_begin_output_line(line));
  const batch::BatchDone done = batch::read_output_line(line, "answers line 1");
  FERRY_CHECK(request != nullptr ? done.custom_id == request->custom_id : done.line == 7 && done.is_failed);
  static_cast<void>(batch::read_output_line(text_of(input), "answers line 2"));
}

}  // namespace ferry::fuzz
