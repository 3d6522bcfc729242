#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/grammar/grammar_spec.h"

// Calls as a structural tag, in the words of xgrammar 0.2.8's own for Qwen 3.5 (get_qwen_3_5_structural_tag), but with
// <tool_call> and its end as tokens where the vocabulary has them, since a call that is spelled by other tokens is none.

namespace ferry {
namespace {

using nlohmann::ordered_json;

ordered_json literal(const std::string& text) { return {{"type", "const_string"}, {"value", text}}; }

ordered_json token(TokenId id) { return {{"type", "token"}, {"token", id}}; }

/// What a value that is a string may not hold: it would end there.
ordered_json tags_in_values() {
  ordered_json tags = ordered_json::array();
  for (int i = static_cast<int>(ReplyTag::kCallBegin); i < kNumReplyTags; ++i)
    tags.push_back(std::string(text_of(static_cast<ReplyTag>(i))));
  return tags;
}

/// "<function=NAME>" to "</function>".
ordered_json function_format(const Tool& tool, bool binds_arguments, const GrammarLimits& limits) {
  ordered_json arguments = {{"type", "any_text"}, {"excludes", {"</function>"}}};
  if (binds_arguments) {
    const ordered_json schema =
        parse_ordered_json(tool.schema, "tools", {.depth = 2 * limits.schema.depth, .members = limits.schema.schemas});
    const auto unenforced = tool.strict ? UnenforcedKeywords::kRefuse : UnenforcedKeywords::kDrop;
    ordered_json enforced = enforceable_schema(schema, "tools." + tool.name + ".parameters", unenforced, limits.schema);
    if (enforced.empty()) enforced = {{"type", "object"}, {"additionalProperties", true}};
    // The family writes one line break around a value and one space inside JSON; with more a call might run on for ever.
    arguments = {{"type", "json_schema"},
                 {"json_schema", enforced},
                 {"style", "qwen_xml"},
                 {"max_whitespace_cnt", 1},
                 {"excludes", tags_in_values()}};
  }
  const std::string begin = std::string(text_of(ReplyTag::kFunctionBegin)) + tool.name + ">\n";
  return {
      {"type", "sequence"},
      {"elements", {literal("\n" + begin), arguments, literal("\n" + std::string(text_of(ReplyTag::kFunctionEnd)) + "\n")}}};
}

/// "<tool_call>" to its end, around one of `functions`.
ordered_json call_tag(const ordered_json& functions, const ReplyMarkers& markers) {
  const auto begin = markers.id_of(ReplyTag::kCallBegin);
  const auto end = markers.id_of(ReplyTag::kCallEnd);
  return {{"type", "tag"},
          {"begin", begin ? token(*begin) : ordered_json(std::string(text_of(ReplyTag::kCallBegin)))},
          {"content", functions.size() == 1 ? functions[0] : ordered_json{{"type", "or"}, {"elements", functions}}},
          {"end", end ? token(*end) : ordered_json(std::string(text_of(ReplyTag::kCallEnd)))}};
}

/// Text with calls in it.
ordered_json text_with_calls(const ordered_json& tag, bool at_least_one, bool parallel_calls) {
  const bool by_token = tag["begin"].is_object();
  ordered_json format = {{"type", by_token ? "token_triggered_tags" : "triggered_tags"}};
  if (by_token) {
    format["trigger_tokens"] = ordered_json::array({tag["begin"]["token"]});
  } else {
    format["triggers"] = ordered_json::array({tag["begin"]});
  }
  format["tags"] = ordered_json::array({tag});
  format["at_least_one"] = at_least_one;
  format["stop_after_first"] = !parallel_calls;
  return format;
}

}  // namespace

std::optional<GrammarSpec> tools_grammar(const ToolSet& tools, const ToolChoice& choice, bool parallel_calls,
                                         const ReplyMarkers& markers, const GrammarLimits& limits) {
  using Kind = ToolChoice::Kind;
  const bool any_strict = std::any_of(tools.tools().begin(), tools.tools().end(), [](const Tool& tool) { return tool.strict; });
  if (tools.empty() || choice.kind == Kind::kNone || (choice.kind == Kind::kAuto && !any_strict)) return std::nullopt;
  ordered_json functions = ordered_json::array();
  for (const Tool& tool : tools.tools()) {
    if (choice.kind == Kind::kNamed && tool.name != choice.name) continue;
    functions.push_back(function_format(tool, choice.kind != Kind::kAuto || tool.strict, limits));
  }
  const ordered_json tag = call_tag(functions, markers);
  const ordered_json format =
      choice.kind == Kind::kNamed ? tag : text_with_calls(tag, choice.kind == Kind::kRequired, parallel_calls);
  const ordered_json whole = {{"type", "structural_tag"}, {"format", format}};
  GrammarSpec spec{.kind = GrammarSpec::Kind::kStructuralTag, .text = whole.dump(), .starts_with_calls = true};
  if (static_cast<int64_t>(spec.text.size()) > 4 * limits.text_bytes) {
    throw_invalid("tools: as a grammar they have more than " + std::to_string(4 * limits.text_bytes) + " bytes");
  }
  return spec;
}

}  // namespace ferry
