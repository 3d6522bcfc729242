#include "runtime/server/api/template_fields.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/json.h"
#include "runtime/base/quoting.h"
#include "runtime/server/api/api_error.h"

namespace ferry::api {
namespace {

/// Variables of a template that a request sets by fields of its own.
constexpr const char* kOwnVariables[] = {"messages", "tools", "add_generation_prompt", "continue_final_message"};
constexpr const char* kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

int64_t schema_bytes(const ServerLimits& limits) { return std::min(limits.prompt_bytes, ToolLimits{}.schema_bytes); }

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

}  // namespace ferry::api
