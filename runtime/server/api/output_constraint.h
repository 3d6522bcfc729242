#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/grammar/grammar_engine.h"
#include "runtime/server/api/request_fields.h"

namespace ferry::api {

/// What the text of each choice has to be like.
struct OutputConstraint {
  GrammarSpec spec;
  std::string param;  // the field that asks for it
};

/// Of response_format, structured_outputs or one of guided_json, guided_regex, guided_choice and guided_grammar, which are
/// structured_outputs of one kind. Throws ApiError 400 for what is wrong or cannot be enforced, and for more than one.
std::optional<OutputConstraint> read_constraint(const RequestFields& fields);

/// Of a JSON schema that stands at `path`. Throws ApiError 400.
OutputConstraint schema_constraint(const ordered_json& schema, const std::string& path);
/// Takes `more` in, if there is one. Throws ApiError 400 if it is not the first.
void add_constraint(std::optional<OutputConstraint> more, std::optional<OutputConstraint>& constraint);

/// The request's own constraint or that of its tools: calls that are forced, or arguments of strict tools. Throws ApiError 400
/// if both are there.
std::optional<OutputConstraint> with_tools(std::optional<OutputConstraint> own, const ToolSet& tools, const ToolChoice& choice,
                                           bool parallel_calls, const ReplyMarkers& markers);

/// Compiles the grammar of a constraint, which make_matcher() finds while the result is held. Takes time, and throws ApiError
/// and what `check_in` throws, as GrammarEngine::compile() does.
std::shared_ptr<const CompiledGrammar> compile_grammar(GrammarEngine& grammars, const OutputConstraint& constraint,
                                                       const std::function<void()>& check_in);

/// A matcher for a completion of `prompt`, null without a constraint: it begins behind the thought that the prompt ends in, if
/// it does. Takes time; throws ApiError.
std::shared_ptr<TokenGrammar> make_matcher(GrammarEngine& grammars, const std::optional<OutputConstraint>& constraint,
                                           std::span<const TokenId> prompt, const ReplyMarkers& markers);

}  // namespace ferry::api
