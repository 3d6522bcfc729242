#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/grammar/schema_check.h"
#include "runtime/text/reply/reply_markers.h"
#include "runtime/text/reply/tool_set.h"

namespace ferry {

struct GrammarLimits {
  SchemaLimits schema;
  int64_t text_bytes = 256 << 10;  // of a schema, an EBNF or all choices of one request
  int64_t choices = 4096;
};

/// White space between the parts of JSON.
enum class JsonSpace {
  kSingle,  // at most one character at a place, so that no model runs on in it: compact JSON, or ", " and ": "
  kFixed,   // ", " and ": ", nothing else
  kAny,     // as the model likes, without end
};

/// What a completion has to be like, checked and in the form that the compiler takes.
struct GrammarSpec {
  enum class Kind { kJsonSchema, kRegex, kEbnf, kStructuralTag };
  Kind kind = Kind::kJsonSchema;
  std::string text;                      // the schema, regex, EBNF or structural tag
  JsonSpace space = JsonSpace::kSingle;  // of kJsonSchema
  bool has_marker_texts = false;         // texts of the grammar may mean tokens such as <tool_call>
  bool starts_with_calls = false;        // <tool_call> inside a thought ends it and is the beginning

  bool operator==(const GrammarSpec&) const = default;
};

// All throw Error{kInvalidArgument} with the path of what is wrong.

/// Any JSON object.
GrammarSpec json_object_grammar(JsonSpace space = JsonSpace::kSingle);
GrammarSpec json_schema_grammar(const nlohmann::ordered_json& schema, const std::string& path,
                                JsonSpace space = JsonSpace::kSingle, const GrammarLimits& limits = {});
/// Python's syntax without look-arounds, references and word boundaries; the whole completion matches.
GrammarSpec regex_grammar(const std::string& regex, const std::string& path, const GrammarLimits& limits = {});
/// One of a list of strings.
GrammarSpec choice_grammar(const nlohmann::ordered_json& choices, const std::string& path, const GrammarLimits& limits = {});
/// xgrammar's EBNF; the rule `root` is the whole.
GrammarSpec ebnf_grammar(const std::string& ebnf, const std::string& path, const GrammarLimits& limits = {});
/// xgrammar's structural tag: {"type": "structural_tag", "format": {…}}.
GrammarSpec structural_tag_grammar(const nlohmann::ordered_json& tag, const std::string& path,
                                   const GrammarLimits& limits = {});

/// Calls of tools in the Qwen family's XML: required and named force one, each call's arguments bound by its schema; auto binds
/// those of strict tools. Nothing if nothing is to be forced. What cannot be enforced of a strict tool's schema is refused, of
/// another's left out.
std::optional<GrammarSpec> tools_grammar(const ToolSet& tools, const ToolChoice& choice, bool parallel_calls,
                                         const ReplyMarkers& markers, const GrammarLimits& limits = {});

/// OpenAI's response_format: null, {"type": "text" | "json_object" | "json_schema" | "structural_tag", …}.
std::optional<GrammarSpec> parse_response_format(const nlohmann::ordered_json& format, const GrammarLimits& limits = {});
/// vLLM's structured_outputs: exactly one of json, regex, choice, grammar, json_object, structural_tag, and how.
std::optional<GrammarSpec> parse_structured_outputs(const nlohmann::ordered_json& outputs, const GrammarLimits& limits = {});

}  // namespace ferry
