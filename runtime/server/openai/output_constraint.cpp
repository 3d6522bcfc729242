#include "runtime/server/openai/output_constraint.h"

#include <utility>

#include "runtime/server/openai/api_error.h"

namespace ferry::openai {
namespace {

struct Alias {
  const char* field;
  const char* kind;  // of structured_outputs
};
constexpr Alias kAliases[] = {
    {"guided_json", "json"}, {"guided_regex", "regex"}, {"guided_choice", "choice"}, {"guided_grammar", "grammar"}};

/// What `make` returns; its errors name `param`.
template <class Make>
auto blaming(const std::string& param, Make&& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw ApiError(error, param);
  }
}

/// Takes `spec` in, if there is one and it is the first.
void add(std::optional<GrammarSpec> spec, const std::string& param, std::optional<OutputConstraint>& constraint) {
  if (!spec) return;
  if (constraint)
    refuse(param, "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').");
  constraint = {.spec = std::move(*spec), .param = param};
}

}  // namespace

std::optional<OutputConstraint> read_constraint(const RequestFields& fields) {
  std::optional<OutputConstraint> constraint;
  if (const ordered_json* format = fields.find("response_format")) {
    const std::string param = "response_format";
    add(blaming(param, [&] { return parse_response_format(*format); }), param, constraint);
  }
  if (const ordered_json* outputs = fields.find("structured_outputs")) {
    const std::string param = "structured_outputs";
    add(blaming(param, [&] { return parse_structured_outputs(*outputs); }), param, constraint);
  }
  for (const Alias& alias : kAliases) {
    const ordered_json* value = fields.find(alias.field);
    if (value == nullptr) continue;
    const ordered_json outputs = {{alias.kind, *value}};
    add(blaming(alias.field, [&] { return parse_structured_outputs(outputs); }), alias.field, constraint);
  }
  return constraint;
}

std::optional<OutputConstraint> with_tools(std::optional<OutputConstraint> own, const ToolSet& tools, const ToolChoice& choice,
                                           bool parallel_calls, const ReplyMarkers& markers) {
  const bool is_forced = choice.kind == ToolChoice::Kind::kRequired || choice.kind == ToolChoice::Kind::kNamed;
  const std::string param = is_forced ? "tool_choice" : "tools";
  add(blaming(param, [&] { return tools_grammar(tools, choice, parallel_calls, markers); }), param, own);
  return own;
}

std::shared_ptr<TokenGrammar> make_matcher(GrammarEngine& grammars, const std::optional<OutputConstraint>& constraint,
                                           std::span<const TokenId> prompt, const ReplyMarkers& markers) {
  if (!constraint) return nullptr;
  return blaming(constraint->param, [&] { return grammars.make(constraint->spec, markers.ends_in_reasoning(prompt)); });
}

}  // namespace ferry::openai
