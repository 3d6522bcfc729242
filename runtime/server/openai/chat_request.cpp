#include "runtime/server/openai/chat_request.h"
#include "runtime/server/api/template_fields.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/json.h"
#include "runtime/base/quoting.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/openai/chat_messages.h"

namespace ferry::api::openai {
namespace {

void read_tool_choice(const RequestFields& fields, ChatRequest& chat) {
  const ordered_json* choice = fields.find("tool_choice");
  const bool is_none = choice != nullptr && choice->is_string() && choice->get_ref<const std::string&>() == "none";
  if (choice != nullptr && !is_none && !fields.has("tools"))
    refuse("tool_choice", "When using `tool_choice`, `tools` must be set.");
  chat.tool_choice = ToolChoice::parse(choice == nullptr ? ordered_json() : *choice, chat.prompt.tools);
  chat.parallel_tool_calls = fields.flag("parallel_tool_calls", true);
}

void read_logprobs(const RequestFields& fields, const ApiSettings& settings, SamplingParams& sampling) {
  const std::optional<int32_t> top = read_num_logprobs(fields, "top_logprobs", settings);
  const bool is_wanted = fields.flag("logprobs", false);
  if (top.value_or(0) != 0 && !is_wanted) refuse("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.");
  if (is_wanted) sampling.logprobs = top.value_or(0);
}

std::optional<int64_t> read_max_tokens(const RequestFields& fields, const GenerationDefaults& defaults) {
  const int64_t most = std::numeric_limits<int32_t>::max();
  const std::optional<int64_t> newer = fields.integer("max_completion_tokens", 1, most);
  const std::optional<int64_t> older = fields.integer("max_tokens", 1, most);
  if (newer) return newer;
  return older ? older : defaults.max_new_tokens;
}

}  // namespace

ChatPrompt parse_chat_prompt(const RequestFields& fields, const ApiSettings& settings) {
  ChatPrompt prompt;
  const ordered_json* messages = fields.find("messages");
  if (messages == nullptr) refuse_form("messages", "missing field `messages`");
  ChatMessages read = read_messages(*messages, settings.limits);
  prompt.input.messages = std::move(read.messages);
  prompt.picture_urls = std::move(read.picture_urls);
  if (const ordered_json* tools = fields.find("tools")) {
    if (tools->is_array() && tools->empty()) {
      refuse("tools", "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.");
    }
    set_tools(*tools, settings.limits, prompt);
  }
  prompt.input.kwargs = read_template_kwargs(fields, settings);
  prompt.input.continue_final_message = fields.flag("continue_final_message", false);
  prompt.input.add_generation_prompt = fields.flag("add_generation_prompt", !prompt.input.continue_final_message);
  if (prompt.input.continue_final_message && prompt.input.add_generation_prompt) {
    refuse("continue_final_message", "Cannot set both `continue_final_message` and `add_generation_prompt` to True.");
  }
  return prompt;
}

ChatRequest parse_chat(const ordered_json& body, const HttpRequest& request, const ApiSettings& settings) {
  const RequestFields fields(body);
  ChatRequest chat;
  chat.prompt = parse_chat_prompt(fields, settings);
  chat.generation = read_generation(fields, request, settings);
  chat.generation.adds_special_tokens = fields.flag("add_special_tokens", false);
  chat.generation.max_tokens = read_max_tokens(fields, settings.defaults);
  if (chat.generation.truncation && !chat.prompt.picture_urls.empty())
    refuse("truncate_prompt_tokens", "truncate_prompt_tokens is given beside pictures; allowed: one of them");
  read_logprobs(fields, settings, chat.generation.sampling);
  check_min_tokens(chat.generation);
  read_tool_choice(fields, chat);
  chat.includes_reasoning = fields.flag("include_reasoning", true);
  const ordered_json& last = chat.prompt.input.messages.back();
  chat.role = chat.prompt.input.add_generation_prompt ? "assistant" : last.at("role").get<std::string>();
  if (fields.flag("echo", false) && last.at("role") == chat.role) chat.echoed = text_of(last.at("content"));
  return chat;
}

}  // namespace ferry::api::openai
