#include "runtime/server/openai/responses_request.h"

#include <limits>
#include <utility>

#include "runtime/base/json.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/api/refused_fields.h"
#include "runtime/server/api/template_fields.h"
#include "runtime/server/openai/chat_request.h"
#include "runtime/server/openai/responses_input.h"

namespace ferry::api::openai {
namespace {

/// Fields that need something to be stored here, that the answer has no place for, or that only OpenAI's own servers have.
constexpr const char* kUnservedInResponses[] = {"previous_response_id",
                                                "conversation",
                                                "background",
                                                "prompt",
                                                "context_management",
                                                "max_tool_calls",
                                                "moderation",
                                                "logprobs",
                                                "prompt_logprobs",
                                                "return_token_ids",
                                                "echo",
                                                "max_tokens",
                                                "messages",
                                                "response_format",
                                                "truncate_prompt_tokens",
                                                "prompt_cache_options",
                                                "access_programs",
                                                "background_options"};

/// Functions in the form of chats, which has their fields an object deeper.
ordered_json read_response_tools(const ordered_json& tools) {
  if (!tools.is_array()) refuse_form("tools", "tools is " + shown(tools) + "; allowed: a list");
  ordered_json functions = ordered_json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string where = ChatBuilder::at("tools", i);
    if (!tools[i].is_object()) refuse_form(where, where + " is " + shown(tools[i]) + "; allowed: an object");
    const std::string type = required_text(RequestFields(tools[i], where + "."), "type", where);
    if (type != "function") refuse(where + ".type", where + " is of type " + shown(ordered_json(type)) + "; allowed: function");
    ordered_json function = ordered_json::object();
    for (const char* name : {"name", "description", "parameters", "strict"}) {
      if (tools[i].contains(name) && !tools[i][name].is_null()) function[name] = tools[i][name];
    }
    functions.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return functions;
}

/// "auto", "none", "required" or {"type": "function", "name"}.
ToolChoice read_response_tool_choice(const RequestFields& fields, const ToolSet& tools) {
  const ordered_json* asked = fields.find("tool_choice");
  if (asked == nullptr) return ToolChoice::parse(nullptr, tools);
  if (tools.empty()) {
    if (*asked != "none" && *asked != "auto") refuse("tool_choice", "When using `tool_choice`, `tools` must be set.");
    return ToolChoice::parse(nullptr, tools);
  }
  if (!asked->is_object()) return ToolChoice::parse(*asked, tools);
  const RequestFields choice(*asked, "tool_choice.");
  const std::string type = required_text(choice, "type", "tool_choice");
  if (type != "function")
    refuse("tool_choice.type", "tool_choice.type is " + shown(ordered_json(type)) + "; allowed: function");
  const ordered_json function = {{"name", required_text(choice, "name", "tool_choice")}};
  return ToolChoice::parse({{"type", "function"}, {"function", function}}, tools);
}

/// text {"format": {"type": "text" | "json_object" | "json_schema", "schema"?}, "verbosity"}.
std::optional<OutputConstraint> read_text_format(const RequestFields& fields) {
  const auto text = fields.object("text");
  if (!text) return std::nullopt;
  const std::string verbosity = text->string("verbosity").value_or("medium");
  if (verbosity != "medium")
    refuse("text.verbosity", "text.verbosity is " + shown(ordered_json(verbosity)) + "; allowed: medium");
  const auto format = text->object("format");
  const std::string type = format ? required_text(*format, "type", "text.format") : "text";
  if (type == "text") return std::nullopt;
  if (type == "json_object") return OutputConstraint{.spec = json_object_grammar(), .param = "text.format"};
  if (type != "json_schema") {
    refuse("text.format.type",
           "text.format.type is " + shown(ordered_json(type)) + "; allowed: text, json_object, json_schema");
  }
  const ordered_json* schema = format->find("schema");
  if (schema == nullptr) refuse_form("text.format.schema", "text.format has no schema");
  return schema_constraint(*schema, "text.format.schema");
}

void check_response_values(const RequestFields& fields) {
  const auto truncation = fields.string("truncation").value_or("disabled");
  if (truncation != "disabled")
    refuse("truncation", "truncation is " + shown(ordered_json(truncation)) + "; allowed: disabled");
  if (fields.integer("top_logprobs").value_or(0) != 0) refuse("top_logprobs", "top_logprobs is not supported.");
  if (const auto reasoning = fields.object("reasoning")) {
    for (const char* name : {"summary", "generate_summary"}) {
      const std::string summary = reasoning->string(name).value_or("auto");
      if (summary != "auto")
        refuse(reasoning->path_of(name), reasoning->path_of(name) + " is " + shown(ordered_json(summary)) + "; allowed: auto");
    }
  }
}

/// What of `include` there is.
bool includes_thought(const RequestFields& fields) {
  bool is_asked = false;
  for (const std::string& what : fields.strings("include")) {
    if (what != "reasoning.encrypted_content")
      refuse("include", "include has " + shown(ordered_json(what)) + "; allowed: \"reasoning.encrypted_content\"");
    is_asked = true;
  }
  return is_asked;
}

void read_response_prompt(const RequestFields& fields, const ApiSettings& settings, ChatPrompt& prompt) {
  ChatMessages read = read_responses_input(fields, settings.limits);
  prompt.input.messages = std::move(read.messages);
  prompt.picture_urls = std::move(read.picture_urls);
  const ordered_json* tools = fields.find("tools");
  if (tools != nullptr && !tools->empty()) set_tools(read_response_tools(*tools), settings.limits, prompt);
  prompt.input.kwargs = read_template_kwargs(fields, settings);
  const auto own = fields.object("chat_template_kwargs");
  if (const auto reasoning = fields.object("reasoning")) {
    set_effort(reasoning->string("effort"), "reasoning.effort", own && own->has("enable_thinking"), prompt.input.kwargs);
  }
}

/// What the answer says again of the request: defaults where it says nothing.
ordered_json echo_of(const ordered_json& body, const ApiSettings& settings) {
  const GenerationDefaults& defaults = settings.defaults;
  ordered_json echoed = {{"instructions", nullptr},
                         {"max_output_tokens", nullptr},
                         {"metadata", ordered_json::object()},
                         {"parallel_tool_calls", true},
                         {"prompt_cache_key", nullptr},
                         {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                         {"safety_identifier", nullptr},
                         {"temperature", defaults.temperature.value_or(1.0)},
                         {"text", {{"format", {{"type", "text"}}}}},
                         {"tool_choice", "auto"},
                         {"tools", ordered_json::array()},
                         {"top_p", defaults.top_p.value_or(1.0)},
                         {"user", nullptr}};
  for (const auto& [name, value] : echoed.items()) {
    const auto found = body.find(name);
    if (found != body.end() && !found->is_null()) value = *found;
  }
  return echoed;
}

}  // namespace

ResponsesRequest parse_responses(const ordered_json& body, const HttpRequest& request, const ApiSettings& settings) {
  const RequestFields fields(body);
  refuse_fields(fields, kUnservedInResponses);
  check_response_values(fields);
  ResponsesRequest response;
  Conversation& conversation = response.conversation;
  conversation.generation = read_generation(fields, request, settings);
  GenerationFields& generation = conversation.generation;
  if (generation.num_choices != 1) refuse("n", "n is " + std::to_string(generation.num_choices) + "; allowed: 1");
  generation.max_tokens = fields.integer("max_output_tokens", 1, std::numeric_limits<int32_t>::max());
  if (!generation.max_tokens) generation.max_tokens = settings.defaults.max_new_tokens;
  check_min_tokens(generation);
  add_constraint(read_text_format(fields), generation.constraint);
  read_response_prompt(fields, settings, conversation.prompt);
  conversation.tool_choice = read_response_tool_choice(fields, conversation.prompt.tools);
  conversation.parallel_tool_calls = fields.flag("parallel_tool_calls", true);
  response.returns_thought = includes_thought(fields);
  response.echoed = echo_of(body, settings);
  return response;
}

}  // namespace ferry::api::openai
