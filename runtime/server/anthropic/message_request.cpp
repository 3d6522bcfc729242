#include "runtime/server/anthropic/message_request.h"

#include <limits>
#include <utility>

#include "runtime/base/json.h"
#include "runtime/server/anthropic/message_reader.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/api/refused_fields.h"
#include "runtime/server/api/template_fields.h"

namespace ferry::api::anthropic {
namespace {

constexpr int64_t kBudgetMin = 1024;  // tokens of a thought, as Anthropic's API has it

/// Fields that the answer has no place for, or that ask for what only Anthropic's own servers have.
constexpr const char* kUnserved[] = {
    "logprobs", "top_logprobs",           "prompt_logprobs", "return_token_ids", "echo",      "stream_options",
    "stop",     "continue_final_message", "container",       "mcp_servers",      "fallbacks", "truncate_prompt_tokens",
};

/// Functions in OpenAI's form.
ordered_json read_tools(const ordered_json& tools) {
  if (!tools.is_array()) refuse_form("tools", "tools is " + shown(tools) + "; allowed: a list");
  ordered_json functions = ordered_json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string where = ChatBuilder::at("tools", i);
    if (!tools[i].is_object()) refuse_form(where, where + " is " + shown(tools[i]) + "; allowed: an object");
    const RequestFields tool(tools[i], where + ".");
    const std::string type = tool.string("type").value_or("custom");
    if (type != "custom")
      refuse(where + ".type", where + " is of type " + shown(ordered_json(type)) + "; allowed: custom, which the client runs");
    ordered_json function = {{"name", required_text(tool, "name", where)}};
    if (auto description = tool.string("description")) function["description"] = std::move(*description);
    if (const ordered_json* schema = tool.find("input_schema")) function["parameters"] = *schema;
    if (tool.flag("strict", false)) function["strict"] = true;
    functions.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return functions;
}

/// {"type": "auto" | "any" | "tool" | "none", "name"?, "disable_parallel_tool_use"?}.
void read_tool_choice(const RequestFields& fields, Conversation& conversation) {
  const ToolSet& tools = conversation.prompt.tools;
  ordered_json choice;
  if (const auto asked = fields.object("tool_choice")) {
    const std::string type = required_text(*asked, "type", "tool_choice");
    if (type == "auto" || type == "none") {
      choice = type;
    } else if (type == "any") {
      choice = "required";
    } else if (type == "tool") {
      choice = {{"type", "function"}, {"function", {{"name", required_text(*asked, "name", "tool_choice")}}}};
    } else {
      refuse("tool_choice.type", "tool_choice.type is " + shown(ordered_json(type)) + "; allowed: auto, any, tool, none");
    }
    if (tools.empty() && type != "none") refuse("tool_choice", "tool_choice is given without tools");
    conversation.parallel_tool_calls = !asked->flag("disable_parallel_tool_use", false);
  }
  conversation.tool_choice = ToolChoice::parse(choice, tools);
}

/// Who does not ask for thoughts gets none, unless the server or the request's template variables say otherwise.
void read_thinking(const RequestFields& fields, ChatPrompt& prompt) {
  const auto thinking = fields.object("thinking");
  if (!thinking) {
    if (!prompt.input.kwargs.contains("enable_thinking")) prompt.input.kwargs["enable_thinking"] = false;
    return;
  }
  const std::string type = required_text(*thinking, "type", "thinking");
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    refuse("thinking.type", "thinking.type is " + shown(ordered_json(type)) + "; allowed: enabled, disabled, adaptive");
  prompt.input.thinking = type != "disabled";
}

/// The bound of the thought, if it has one.
std::optional<int64_t> read_budget(const RequestFields& fields, int64_t max_tokens) {
  const auto thinking = fields.object("thinking");
  if (!thinking || thinking->string("type") != "enabled") return std::nullopt;
  const auto budget = thinking->integer("budget_tokens", kBudgetMin, std::numeric_limits<int32_t>::max());
  if (!budget) refuse_form("thinking.budget_tokens", "thinking has no budget_tokens");
  if (*budget < max_tokens) return budget;
  refuse("thinking.budget_tokens", "thinking.budget_tokens is " + std::to_string(*budget) +
                                       "; allowed: less than max_tokens, " + std::to_string(max_tokens));
}

bool read_display(const RequestFields& fields) {
  const auto thinking = fields.object("thinking");
  const std::string display = thinking ? thinking->string("display").value_or("summarized") : "summarized";
  if (display == "summarized" || display == "omitted") return display == "summarized";
  refuse("thinking.display", "thinking.display is " + shown(ordered_json(display)) + "; allowed: summarized, omitted");
}

/// What is cleared of old thoughts is the template's matter; nothing else can be.
void check_context(const RequestFields& fields) {
  const auto management = fields.object("context_management");
  const ordered_json* edits = management ? management->find("edits") : nullptr;
  if (edits == nullptr) return;
  if (!edits->is_array()) management->refuse_kind("edits", "a list");
  for (std::size_t i = 0; i < edits->size(); ++i) {
    const std::string where = ChatBuilder::at("context_management.edits", i);
    if (!(*edits)[i].is_object()) refuse_form(where, where + " is " + shown((*edits)[i]) + "; allowed: an object");
    const std::string type = required_text(RequestFields((*edits)[i], where + "."), "type", where);
    if (!type.starts_with("clear_thinking_"))
      refuse(where + ".type", where + " is of type " + shown(ordered_json(type)) + "; allowed: clear_thinking_20251015");
  }
}

/// output_config {"effort", "format": {"type": "json_schema", "schema"}}, or output_format, the older name of the latter.
std::optional<OutputConstraint> read_format(const RequestFields& fields) {
  const auto config = fields.object("output_config");
  const bool is_newer = config && config->has("format");
  const auto format = is_newer ? config->object("format") : fields.object("output_format");
  if (!format) return std::nullopt;
  const std::string where = is_newer ? "output_config.format" : "output_format";
  const std::string type = required_text(*format, "type", where);
  if (type != "json_schema")
    refuse(where + ".type", where + ".type is " + shown(ordered_json(type)) + "; allowed: json_schema");
  const ordered_json* schema = format->find("schema");
  if (schema == nullptr) refuse_form(where + ".schema", where + " has no schema");
  return schema_constraint(*schema, where + ".schema");
}

/// A turn that the assistant has begun goes on.
void read_beginning(ChatPrompt& prompt) {
  const ordered_json& last = prompt.input.messages.back();
  if (last.at("role") != "assistant") return;
  if (last.contains("tool_calls")) refuse("messages", "the last message calls tools; allowed: their results behind it");
  prompt.input.continue_final_message = true;
  prompt.input.add_generation_prompt = false;
}

}  // namespace

ChatPrompt parse_message_prompt(const RequestFields& fields, const ApiSettings& settings) {
  ChatPrompt prompt;
  ChatMessages read = read_conversation(fields, settings.limits);
  if (read.messages.empty()) refuse("messages", "messages have no content");
  prompt.input.messages = std::move(read.messages);
  prompt.picture_urls = std::move(read.picture_urls);
  const ordered_json* tools = fields.find("tools");
  if (tools != nullptr && !tools->empty()) set_tools(read_tools(*tools), settings.limits, prompt);
  prompt.input.kwargs = read_template_kwargs(fields, settings);
  if (const auto config = fields.object("output_config"))
    set_effort(config->string("effort"), "output_config.effort", /*has_own_thinking=*/true, prompt.input.kwargs);
  read_thinking(fields, prompt);
  check_context(fields);
  read_beginning(prompt);
  return prompt;
}

MessageRequest parse_message(const ordered_json& body, const HttpRequest& request, const ApiSettings& settings) {
  const RequestFields fields(body);
  MessageRequest message;
  Conversation& conversation = message.conversation;
  refuse_fields(fields, kUnserved);
  conversation.generation = read_generation(fields, request, settings);
  GenerationFields& generation = conversation.generation;
  const ordered_json* metadata = fields.find("metadata");
  if (metadata != nullptr && metadata->is_object() && metadata->contains("user_id"))
    generation.account = account_of(request, &metadata->at("user_id"));
  if (generation.num_choices != 1) refuse("n", "n is " + std::to_string(generation.num_choices) + "; allowed: 1");
  generation.max_tokens = fields.integer("max_tokens", 1, std::numeric_limits<int32_t>::max());
  if (!generation.max_tokens) refuse_form("max_tokens", "missing field `max_tokens`");
  generation.sampling.stop = read_stop(fields, "stop_sequences", settings.limits);
  check_min_tokens(generation);
  conversation.prompt = parse_message_prompt(fields, settings);
  if (const auto budget = read_budget(fields, *generation.max_tokens)) generation.thinking_budget = budget;
  add_constraint(read_format(fields), generation.constraint);
  read_tool_choice(fields, conversation);
  message.shows_thought = read_display(fields);
  return message;
}

}  // namespace ferry::api::anthropic
