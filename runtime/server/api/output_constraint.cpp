#include "runtime/server/api/output_constraint.h"

#include <utility>

#include "runtime/server/api/api_error.h"

namespace ferry::api {
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

/// What `make` returns, if it returns anything, as a constraint that `param` asks for.
template <class Make>
void add_made(const std::string& param, std::optional<OutputConstraint>& constraint, Make&& make) {
  if (std::optional<GrammarSpec> spec = blaming(param, make))
    add_constraint(OutputConstraint{.spec = std::move(*spec), .param = param}, constraint);
}

}  // namespace

OutputConstraint schema_constraint(const ordered_json& schema, const std::string& path) {
  return {.spec = blaming(path, [&] { return json_schema_grammar(schema, path); }), .param = path};
}

void add_constraint(std::optional<OutputConstraint> more, std::optional<OutputConstraint>& constraint) {
  if (!more) return;
  if (constraint) {
    refuse(more->param, "You can only use one kind of constraints for structured outputs ('json', 'regex' or 'choice').");
  }
  constraint = std::move(more);
}

std::optional<OutputConstraint> read_constraint(const RequestFields& fields) {
  std::optional<OutputConstraint> constraint;
  if (const ordered_json* format = fields.find("response_format")) {
    add_made("response_format", constraint, [&] { return parse_response_format(*format); });
  }
  if (const ordered_json* outputs = fields.find("structured_outputs")) {
    add_made("structured_outputs", constraint, [&] { return parse_structured_outputs(*outputs); });
  }
  for (const Alias& alias : kAliases) {
    const ordered_json* value = fields.find(alias.field);
    if (value == nullptr) continue;
    const ordered_json outputs = {{alias.kind, *value}};
    add_made(alias.field, constraint, [&] { return parse_structured_outputs(outputs); });
  }
  return constraint;
}

std::optional<OutputConstraint> with_tools(std::optional<OutputConstraint> own, const ToolSet& tools, const ToolChoice& choice,
                                           bool parallel_calls, const ReplyMarkers& markers) {
  const bool is_forced = choice.kind == ToolChoice::Kind::kRequired || choice.kind == ToolChoice::Kind::kNamed;
  const std::string param = is_forced ? "tool_choice" : "tools";
  add_made(param, own, [&] { return tools_grammar(tools, choice, parallel_calls, markers); });
  return own;
}

std::shared_ptr<const CompiledGrammar> compile_grammar(GrammarEngine& grammars, const OutputConstraint& constraint,
                                                       const std::function<void()>& check_in) {
  try {
    return grammars.compile(constraint.spec, check_in);
  } catch (const Error& error) {
    check_in();  // what it throws is nothing that the field is to blame for
    throw ApiError(error, constraint.param);
  }
}

std::shared_ptr<TokenGrammar> make_matcher(GrammarEngine& grammars, const std::optional<OutputConstraint>& constraint,
                                           std::span<const TokenId> prompt, const ReplyMarkers& markers) {
  if (!constraint) return nullptr;
  return blaming(constraint->param, [&] { return grammars.make(constraint->spec, markers.ends_in_reasoning(prompt)); });
}

}  // namespace ferry::api
