#include "runtime/server/openai/chat_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/json.h"
#include "runtime/base/quoting.h"
#include "runtime/server/openai/api_error.h"
#include "runtime/server/openai/chat_messages.h"

namespace ferry::openai {
namespace {

/// Variables of a template that a request sets by fields of its own.
constexpr const char* kOwnVariables[] = {"messages", "tools", "add_generation_prompt", "continue_final_message"};
constexpr const char* kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

int64_t schema_bytes(const ServerLimits& limits) { return std::min(limits.prompt_bytes, ToolLimits{}.schema_bytes); }

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

void set_effort(const std::optional<std::string>& effort, const std::string& field, bool has_own_thinking,
                ordered_json& kwargs) {
  if (!effort) return;
  if (std::find(std::begin(kEfforts), std::end(kEfforts), *effort) == std::end(kEfforts)) {
    refuse_form(field,
                field + " is " + shown(ordered_json(*effort)) + "; allowed: none, minimal, low, medium, high, xhigh, max");
  }
  kwargs["reasoning_effort"] = *effort;
  if (!has_own_thinking) kwargs["enable_thinking"] = *effort != "none";
}

ordered_json read_template_kwargs(const RequestFields& fields, const ApiSettings& settings) {
  ordered_json kwargs = settings.template_kwargs;
  bool has_own_thinking = false;
  if (fields.object("chat_template_kwargs")) {
    for (const auto& [name, value] : fields.find("chat_template_kwargs")->items()) {
      if (std::find(std::begin(kOwnVariables), std::end(kOwnVariables), name) != std::end(kOwnVariables))
        refuse("chat_template_kwargs",
               "chat_template_kwargs has " + in_quotes(name) + "; allowed: variables that are no fields");
      kwargs[name] = value;
      has_own_thinking = has_own_thinking || name == "enable_thinking";
    }
  }
  if (const ordered_json* documents = fields.find("documents")) kwargs["documents"] = *documents;
  set_effort(fields.string("reasoning_effort"), "reasoning_effort", has_own_thinking, kwargs);
  return kwargs;
}

void set_tools(ordered_json tools, const ServerLimits& limits, ChatPrompt& prompt) {
  prompt.tools = ToolSet::parse(tools, {.schema_bytes = schema_bytes(limits)});
  prompt.input.tools = std::move(tools);
}

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

}  // namespace ferry::openai
