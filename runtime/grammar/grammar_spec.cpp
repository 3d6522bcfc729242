#include "runtime/grammar/grammar_spec.h"

#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/quoting.h"
#include "runtime/grammar/pattern_check.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

std::string text_of_json(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

void check_size(const std::string& text, const std::string& path, const GrammarLimits& limits) {
  if (text.empty()) throw_invalid(path + ": is empty");
  if (static_cast<int64_t>(text.size()) > limits.text_bytes) {
    throw_invalid(path + ": has " + std::to_string(text.size()) + " bytes; allowed: at most " +
                  std::to_string(limits.text_bytes));
  }
}

/// A string literal of EBNF.
std::string ebnf_literal(const std::string& text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string literal = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      literal += '\\';
      literal += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      literal += "\\x";
      literal += kHex[byte >> 4];
      literal += kHex[byte & 0xF];
    } else {
      literal += c;
    }
  }
  return literal + '"';
}

/// Schemas inside a structural tag are enforced like others.
void check_schemas_of_tag(ordered_json& value, const std::string& path, const GrammarLimits& limits, int depth = 0) {
  if (depth > limits.schema.depth) throw_invalid(path + ": is nested deeper than " + std::to_string(limits.schema.depth));
  if (!value.is_structured()) return;
  for (auto& [key, inner] : value.items()) {
    const std::string inner_path = value.is_array() ? path + "[" + key + "]" : path + "." + key;
    if (key == "json_schema") {
      inner = enforceable_schema(inner, inner_path, UnenforcedKeywords::kRefuse, limits.schema);
    } else if (key == "pattern" && inner.is_string()) {
      check_pattern(inner.get<std::string>(), inner_path, limits.schema.pattern_bytes, limits.schema.repetitions);
    } else {
      check_schemas_of_tag(inner, inner_path, limits, depth + 1);
    }
  }
}

/// A schema that stands in the request as an object or as its text.
ordered_json schema_or_text(const ordered_json& schema, const std::string& path, const GrammarLimits& limits) {
  if (!schema.is_string()) return schema;
  return parse_ordered_json(schema.get_ref<const std::string&>(), path,
                            {.depth = 2 * limits.schema.depth, .bytes = limits.text_bytes, .members = limits.schema.schemas});
}

/// Who says nothing of white space gets what ends.
JsonSpace space_of(const ordered_json& outputs) {
  const auto found = outputs.find("disable_any_whitespace");
  if (found == outputs.end() || found->is_null()) return JsonSpace::kSingle;
  if (!found->is_boolean()) throw_invalid("structured_outputs.disable_any_whitespace: true or false is needed");
  return found->get<bool>() ? JsonSpace::kFixed : JsonSpace::kAny;
}

const std::string& string_at(const ordered_json& value, const std::string& path) {
  if (!value.is_string()) throw_invalid(path + ": a string is needed");
  return value.get_ref<const std::string&>();
}

}  // namespace

GrammarSpec json_object_grammar(JsonSpace space) {
  return {.text = R"({"type":"object","additionalProperties":true})", .space = space};
}

GrammarSpec json_schema_grammar(const ordered_json& schema, const std::string& path, JsonSpace space,
                                const GrammarLimits& limits) {
  const ordered_json enforced = enforceable_schema(schema, path, UnenforcedKeywords::kRefuse, limits.schema);
  GrammarSpec spec{.kind = GrammarSpec::Kind::kJsonSchema, .text = text_of_json(enforced), .space = space};
  check_size(spec.text, path, limits);
  return spec;
}

GrammarSpec regex_grammar(const std::string& regex, const std::string& path, const GrammarLimits& limits) {
  check_size(regex, path, limits);
  check_pattern(regex, path, limits.schema.pattern_bytes, limits.schema.repetitions);
  return {.kind = GrammarSpec::Kind::kRegex, .text = regex};
}

GrammarSpec choice_grammar(const ordered_json& choices, const std::string& path, const GrammarLimits& limits) {
  if (!choices.is_array() || choices.empty()) throw_invalid(path + ": a list of strings is needed");
  if (static_cast<int64_t>(choices.size()) > limits.choices) {
    throw_invalid(path + ": there are " + std::to_string(choices.size()) + "; allowed: at most " +
                  std::to_string(limits.choices));
  }
  std::string ebnf;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::string& choice = string_at(choices[i], path + "[" + std::to_string(i) + "]");
    if (choice.empty()) throw_invalid(path + "[" + std::to_string(i) + "]: is empty");
    ebnf += (i == 0 ? "root ::= " : " | ") + ebnf_literal(choice);
  }
  check_size(ebnf, path, limits);
  return {.kind = GrammarSpec::Kind::kEbnf, .text = ebnf};
}

GrammarSpec ebnf_grammar(const std::string& ebnf, const std::string& path, const GrammarLimits& limits) {
  check_size(ebnf, path, limits);
  return {.kind = GrammarSpec::Kind::kEbnf, .text = ebnf, .has_marker_texts = true};
}

GrammarSpec structural_tag_grammar(const ordered_json& tag, const std::string& path, const GrammarLimits& limits) {
  ordered_json checked = tag;
  if (!tag.is_object() || !tag.contains("format")) throw_invalid(path + ": an object with `format` is needed");
  checked["type"] = "structural_tag";
  check_schemas_of_tag(checked["format"], path + ".format", limits);
  GrammarSpec spec{.kind = GrammarSpec::Kind::kStructuralTag, .text = text_of_json(checked), .has_marker_texts = true};
  check_size(spec.text, path, limits);
  return spec;
}

std::optional<GrammarSpec> parse_response_format(const ordered_json& format, const GrammarLimits& limits) {
  if (format.is_null()) return std::nullopt;
  const std::string path = "response_format";
  if (!format.is_object() || !format.contains("type")) throw_invalid(path + ".type: a string is needed");
  const std::string& type = string_at(format["type"], path + ".type");
  if (type == "text") return std::nullopt;
  if (type == "json_object") return json_object_grammar();
  if (type == "structural_tag") return structural_tag_grammar(format, path, limits);
  if (type != "json_schema") {
    throw_invalid(path + ".type: " + in_quotes(type) +
                  R"( is not supported; it may be "text", "json_object", "json_schema" or )" + R"("structural_tag")");
  }
  const std::string inner = path + ".json_schema";
  if (!format.contains("json_schema") || !format["json_schema"].is_object()) throw_invalid(inner + ": an object is needed");
  if (!format["json_schema"].contains("schema")) throw_invalid(inner + ".schema: a JSON schema is needed");
  return json_schema_grammar(format["json_schema"]["schema"], inner + ".schema", JsonSpace::kSingle, limits);
}

std::optional<GrammarSpec> parse_structured_outputs(const ordered_json& outputs, const GrammarLimits& limits) {
  if (outputs.is_null()) return std::nullopt;
  const std::string path = "structured_outputs";
  if (!outputs.is_object()) throw_invalid(path + ": an object is needed");
  static constexpr std::array kKinds = {"json", "regex", "choice", "grammar", "json_object", "structural_tag"};
  std::vector<std::string> kinds;
  for (const char* kind : kKinds) {
    if (outputs.contains(kind) && !outputs[kind].is_null() && outputs[kind] != false) kinds.emplace_back(kind);
  }
  if (kinds.size() != 1) {
    throw_invalid(
        "You can only use one kind of constraints for structured outputs ('json', 'regex', 'choice', 'grammar', "
        "'json_object' or 'structural_tag').");
  }
  for (const char* key : {"whitespace_pattern", "disable_additional_properties"}) {
    const bool is_asked = outputs.contains(key) && !outputs[key].is_null() && outputs[key] != false;
    const bool is_so = std::string(key) == "disable_additional_properties";  // objects that list properties have no others
    if (is_asked && !is_so) throw_invalid(path + "." + key + ": is not supported");
  }
  const std::string& kind = kinds.front();
  const ordered_json& value = outputs[kind];
  const std::string inner = path + "." + kind;
  if (kind == "json") return json_schema_grammar(schema_or_text(value, inner, limits), inner, space_of(outputs), limits);
  if (kind == "regex") return regex_grammar(string_at(value, inner), inner, limits);
  if (kind == "choice") return choice_grammar(value, inner, limits);
  if (kind == "grammar") return ebnf_grammar(string_at(value, inner), inner, limits);
  if (kind == "structural_tag") return structural_tag_grammar(schema_or_text(value, inner, limits), inner, limits);
  return json_object_grammar(space_of(outputs));
}

}  // namespace ferry
