#include "runtime/grammar/schema_check.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/quoting.h"
#include "runtime/grammar/exclusive_schemas.h"
#include "runtime/grammar/pattern_check.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxRefs = 32;

/// A keyword that restricts values, and the type whose values it is about.
struct Keyword {
  std::string_view name;
  std::string_view type;  // empty: of any
  bool enforced;
};

constexpr std::array kKeywords = {Keyword{"not", "", false},
                                  Keyword{"if", "", false},
                                  Keyword{"then", "", false},
                                  Keyword{"else", "", false},
                                  Keyword{"$dynamicRef", "", false},
                                  Keyword{"$recursiveRef", "", false},
                                  Keyword{"minLength", "string", true},
                                  Keyword{"maxLength", "string", true},
                                  Keyword{"pattern", "string", true},
                                  Keyword{"format", "string", true},
                                  Keyword{"minimum", "number", true},
                                  Keyword{"maximum", "number", true},
                                  Keyword{"exclusiveMinimum", "number", true},
                                  Keyword{"exclusiveMaximum", "number", true},
                                  Keyword{"multipleOf", "number", true},
                                  Keyword{"items", "array", true},
                                  Keyword{"prefixItems", "array", true},
                                  Keyword{"minItems", "array", true},
                                  Keyword{"maxItems", "array", true},
                                  Keyword{"uniqueItems", "array", false},
                                  Keyword{"contains", "array", false},
                                  Keyword{"minContains", "array", false},
                                  Keyword{"maxContains", "array", false},
                                  Keyword{"additionalItems", "array", false},
                                  Keyword{"unevaluatedItems", "array", false},
                                  Keyword{"properties", "object", true},
                                  Keyword{"required", "object", true},
                                  Keyword{"additionalProperties", "object", true},
                                  Keyword{"patternProperties", "object", true},
                                  Keyword{"propertyNames", "object", true},
                                  Keyword{"minProperties", "object", true},
                                  Keyword{"maxProperties", "object", true},
                                  Keyword{"dependentRequired", "object", false},
                                  Keyword{"dependentSchemas", "object", false},
                                  Keyword{"dependencies", "object", false},
                                  Keyword{"unevaluatedProperties", "object", false}};

/// Formats as patterns: the compiler's own let quotes into JSON strings, or nothing at all.
const std::map<std::string, std::string>& format_patterns() {
  static const std::string kDate =
      "[12][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))";
  static const std::string kTime =
      R"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))";
  static const std::string kLabel = "[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?";
  static const std::string kHost = kLabel + R"((\.)" + kLabel + ")*";
  static const std::string kByte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  static const std::map<std::string, std::string> kPatterns = {
      {"date", "^" + kDate + "$"},
      {"time", "^" + kTime + "$"},
      {"date-time", "^" + kDate + "T" + kTime + "$"},
      {"duration", "^P([0-9]+W|[0-9]+D(T[0-9]+H([0-9]+M([0-9]+S)?)?)?|T[0-9]+H([0-9]+M([0-9]+S)?)?|T[0-9]+M|T[0-9]+S)$"},
      {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
      {"ipv4", "^(" + kByte + R"(\.){3})" + kByte + "$"},
      {"ipv6", "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
      {"hostname", "^" + kHost + "$"},
      {"email", R"(^[a-zA-Z0-9_+-]+(\.[a-zA-Z0-9_+-]+)*@)" + kHost + "$"},
      {"uri", "^https?://" + kHost + "(/[A-Za-z0-9._~/-]*)?$"},
  };
  return kPatterns;
}

bool is_type_name(std::string_view name) {
  static constexpr std::array<std::string_view, 7> kNames = {"string", "number", "integer", "boolean",
                                                             "null",   "object", "array"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

bool has_type(const ordered_json& value, const std::string& type) {
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "number") return value.is_number();
  return value.is_number_integer() || (value.is_number() && value.get<double>() == static_cast<double>(value.get<int64_t>()));
}

class Rewriter {
 public:
  Rewriter(const ordered_json& root, UnenforcedKeywords unenforced, const SchemaLimits& limits)
      : root_(&root), unenforced_(unenforced), limits_(&limits) {}

  ordered_json rewrite(const ordered_json& schema, const std::string& path, int depth = 0) {
    if (depth > limits_->depth) throw_invalid(path + ": schemas are nested deeper than " + std::to_string(limits_->depth));
    if (++num_schemas_ > limits_->schemas) {
      throw_invalid(path + ": there are more than " + std::to_string(limits_->schemas) + " schemas");
    }
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) throw_invalid(path + ": false allows no value");
      return ordered_json::object();
    }
    if (!schema.is_object()) throw_invalid(path + ": a schema is an object, not " + shown(schema));
    ordered_json result = rewrite_assertions(schema, path, depth);
    for (const char* key : {"$defs", "definitions"}) {
      if (!schema.contains(key)) continue;
      const ordered_json& definitions = schema[key];
      if (!definitions.is_object()) throw_invalid(path + "." + key + ": an object is needed");
      result[key] = ordered_json::object();
      for (const auto& [name, definition] : definitions.items())
        result[key][name] = rewrite(definition, path + "." + key + "." + name, depth + 1);
    }
    return result;
  }

 private:
  void unenforced(const std::string& path, const std::string& why) const {
    if (unenforced_ == UnenforcedKeywords::kRefuse) throw_invalid(path + ": " + why);
  }

  ordered_json rewrite_assertions(const ordered_json& schema, const std::string& path, int depth) {
    if (schema.contains("$ref")) return rewrite_ref(schema, path);
    if (schema.contains("const")) return rewrite_values(schema, "const", path);
    if (schema.contains("enum")) return rewrite_values(schema, "enum", path);
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      if (schema.contains(key)) return rewrite_branches(schema, key, path, depth);
    }
    const std::vector<std::string> types = types_of(schema, path);
    if (types.empty()) {
      check_siblings(schema, "type", path, {});  // what is about values of every type
      return ordered_json::object();
    }
    if (types.size() == 1) return rewrite_type(schema, types[0], path, depth);
    ordered_json branches = ordered_json::array();
    for (const std::string& type : types) branches.push_back(rewrite_type(schema, type, path, depth));
    return {{"anyOf", branches}};
  }

  /// Refuses what restricts values beside `key`, but for `allowed`.
  void check_siblings(const ordered_json& schema, std::string_view key, const std::string& path,
                      std::initializer_list<std::string_view> allowed) const {
    const auto is_allowed = [&](std::string_view name) {
      return name == key || std::find(allowed.begin(), allowed.end(), name) != allowed.end();
    };
    const auto refuse = [&](std::string_view name) {
      if (!schema.contains(name) || is_allowed(name)) return;
      unenforced(path + "." + std::string(name), "is not supported" + (key == "type" ? "" : " beside " + std::string(key)));
    };
    for (const Keyword& keyword : kKeywords) refuse(keyword.name);
    for (const char* name : {"type", "$ref", "const", "enum", "anyOf", "oneOf", "allOf"}) refuse(name);
  }

  ordered_json rewrite_ref(const ordered_json& schema, const std::string& path) {
    check_siblings(schema, "$ref", path, {});
    const ordered_json* target = &schema;
    for (int i = 0; target->is_object() && target->contains("$ref"); ++i) {
      const ordered_json& ref = (*target)["$ref"];
      if (!ref.is_string()) throw_invalid(path + ".$ref: a string is needed");
      const auto& uri = ref.get_ref<const std::string&>();
      const bool is_inside = uri == "#" || uri.starts_with("#/");
      if (!is_inside) throw_invalid(path + ".$ref: " + in_quotes(uri) + " is not inside the schema (#/…)");
      if (uri.find_first_of("~%") != std::string::npos) throw_invalid(path + ".$ref: " + in_quotes(uri) + " has an escape");
      const ordered_json::json_pointer pointer(uri.substr(1));
      if (!root_->contains(pointer)) throw_invalid(path + ".$ref: " + in_quotes(uri) + " names nothing");
      target = &root_->at(pointer);
      if (i >= kMaxRefs || target == &schema) throw_invalid(path + ".$ref: leads round in a circle");
    }
    return {{"$ref", schema["$ref"]}};
  }

  ordered_json rewrite_values(const ordered_json& schema, const char* key, const std::string& path) {
    check_siblings(schema, key, path, {"type"});
    const bool is_list = std::string_view(key) == "enum";
    const ordered_json values = is_list ? schema[key] : ordered_json::array({schema[key]});
    if (!values.is_array()) throw_invalid(path + "." + key + ": a list is needed");
    const std::vector<std::string> types = schema.contains("type") ? types_of(schema, path) : std::vector<std::string>();
    ordered_json kept = ordered_json::array();
    for (const ordered_json& value : values) {
      const bool fits =
          types.empty() || std::any_of(types.begin(), types.end(), [&](const std::string& t) { return has_type(value, t); });
      if (fits) kept.push_back(value);
    }
    if (kept.empty()) throw_invalid(path + "." + key + ": no value is allowed");
    return {{"enum", kept}};
  }

  ordered_json rewrite_branches(const ordered_json& schema, const char* key, const std::string& path, int depth) {
    check_siblings(schema, key, path, {"type"});
    const ordered_json& branches = schema[key];
    const std::string inner = path + "." + key;
    if (!branches.is_array() || branches.empty()) throw_invalid(inner + ": a list of schemas is needed");
    ordered_json rewritten = ordered_json::array();
    for (std::size_t i = 0; i < branches.size(); ++i) {
      ordered_json branch = branches[i];
      const bool has_own =
          branch.is_object() && (branch.contains("type") || branch.contains("$ref") || branch.contains("enum") ||
                                 branch.contains("const") || branch.contains("anyOf") || branch.contains("oneOf"));
      if (schema.contains("type") && branch.is_object() && !has_own) branch["type"] = schema["type"];
      rewritten.push_back(rewrite(branch, inner + "[" + std::to_string(i) + "]", depth + 1));
    }
    if (rewritten.size() == 1) return rewritten[0];
    if (std::string_view(key) == "allOf") {
      unenforced(inner, "more than one schema is not supported");
      return ordered_json::object();
    }
    if (std::string_view(key) == "oneOf" && !is_one_at_most(branches, path)) {
      unenforced(inner, "is supported where types, constants or required properties let one of the schemas hold at most");
    }
    return {{"anyOf", rewritten}};
  }

  bool is_one_at_most(const ordered_json& branches, const std::string& path) const {
    return are_exclusive(branches, *root_, [&](const ordered_json& schema) { return types_of(schema, path); });
  }

  /// The types that values may have; none: any.
  std::vector<std::string> types_of(const ordered_json& schema, const std::string& path) const {
    std::vector<std::string> types;
    const auto add = [&](const ordered_json& name) {
      if (!name.is_string() || !is_type_name(name.get_ref<const std::string&>())) {
        throw_invalid(path + ".type: " + shown(name) + " is no type of JSON");
      }
      types.push_back(name.get<std::string>());
    };
    if (!schema.contains("type")) {
      for (const Keyword& keyword : kKeywords) {
        const bool is_about = schema.contains(keyword.name) && !keyword.type.empty();
        if (is_about && std::find(types.begin(), types.end(), keyword.type) == types.end()) types.emplace_back(keyword.type);
      }
      return types;
    }
    if (schema["type"].is_array()) {
      for (const ordered_json& name : schema["type"]) add(name);
      if (types.empty()) throw_invalid(path + ".type: is empty");
    } else {
      add(schema["type"]);
    }
    return types;
  }

  ordered_json rewrite_type(const ordered_json& schema, const std::string& type, const std::string& path, int depth) {
    const std::string about = type == "integer" ? "number" : type;
    ordered_json result = {{"type", type}};
    for (const Keyword& keyword : kKeywords) {
      if (!schema.contains(keyword.name) || (!keyword.type.empty() && keyword.type != about)) continue;
      const ordered_json& value = schema[std::string(keyword.name)];
      const bool says_nothing = value == false && (keyword.name == "uniqueItems");
      if (keyword.enforced) {
        result[std::string(keyword.name)] = value;
      } else if (!says_nothing) {
        unenforced(path + "." + std::string(keyword.name), "is not supported");
      }
    }
    if (type == "string") rewrite_string(result, path);
    if (type == "integer") bound_integer(result);
    if (type == "number" && result.contains("multipleOf")) {
      unenforced(path + ".multipleOf", "is supported for integers alone");
      result.erase("multipleOf");
    }
    if (type == "array") rewrite_array(result, path, depth);
    if (type == "object") rewrite_object(result, path, depth);
    return result;
  }

  int64_t count(const ordered_json& schema, const char* key, const std::string& path, int64_t absent) const {
    if (!schema.contains(key)) return absent;
    const ordered_json& value = schema[key];
    if (!value.is_number_integer() || value < 0) throw_invalid(path + "." + key + ": a whole number from 0 on is needed");
    if (value > limits_->repetitions) {
      throw_invalid(path + "." + key + ": is " + value.dump() + "; allowed: at most " + std::to_string(limits_->repetitions));
    }
    return value.get<int64_t>();
  }

  /// An integer has 64 bits where the schema leaves a side open, so that no model runs on in digits. The compiler knows
  /// multiples without bounds alone.
  static void bound_integer(ordered_json& schema) {
    if (schema.contains("multipleOf")) return;
    const auto bound = [&](const char* key, const char* exclusive, int64_t value) {
      if (!schema.contains(key) && !schema.contains(exclusive)) schema[key] = value;
    };
    bound("minimum", "exclusiveMinimum", -std::numeric_limits<int64_t>::max());
    bound("maximum", "exclusiveMaximum", std::numeric_limits<int64_t>::max());
  }

  void rewrite_string(ordered_json& schema, const std::string& path) {
    const int64_t min_length = count(schema, "minLength", path, 0);
    const int64_t max_length = count(schema, "maxLength", path, -1);
    schema.erase("minLength");
    schema.erase("maxLength");
    if (schema.contains("format")) rewrite_format(schema, path);
    if (schema.contains("pattern")) {
      if (!schema["pattern"].is_string()) throw_invalid(path + ".pattern: a string is needed");
      schema["pattern"] = rewritten_pattern(schema["pattern"].get<std::string>(), path + ".pattern");
      if (min_length > 0) unenforced(path + ".minLength", "is not supported beside pattern or format");
      if (max_length >= 0) unenforced(path + ".maxLength", "is not supported beside pattern or format");
      return;
    }
    rewrite_length(schema, min_length, max_length, path);
  }

  std::string rewritten_pattern(const std::string& pattern, const std::string& path) const {
    check_pattern(pattern, path, limits_->pattern_bytes, limits_->repetitions);
    return pattern_in_json(pattern, path);
  }

  void rewrite_format(ordered_json& schema, const std::string& path) {
    const ordered_json format = schema["format"];
    schema.erase("format");
    if (!format.is_string()) throw_invalid(path + ".format: a string is needed");
    const auto& name = format.get_ref<const std::string&>();
    const auto found = format_patterns().find(name);
    if (found != format_patterns().end()) {
      if (schema.contains("pattern")) unenforced(path + ".format", "is not supported beside pattern");
      schema["pattern"] = schema.contains("pattern") ? schema["pattern"] : ordered_json(found->second);
      return;
    }
    static constexpr std::array<std::string_view, 9> kOthers = {"idn-email",    "idn-hostname",          "uri-reference",
                                                                "iri",          "iri-reference",         "uri-template",
                                                                "json-pointer", "relative-json-pointer", "regex"};
    const bool is_standard = std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end();
    if (is_standard) unenforced(path + ".format", in_quotes(name) + " is not supported");
  }

  void rewrite_length(ordered_json& schema, int64_t min_length, int64_t max_length, const std::string& path) {
    if (min_length == 0 && max_length < 0) return;
    if (max_length >= 0 && max_length < min_length) throw_invalid(path + ".maxLength: is less than minLength");
    if (unenforced_ == UnenforcedKeywords::kDrop && (max_length > kMaxCounted || min_length > kMaxCounted)) return;
    for (const auto& [key, length] : {std::pair("minLength", min_length), {"maxLength", max_length}}) {
      if (length > kMaxCounted) {
        throw_invalid(path + "." + key + ": is " + std::to_string(length) + "; allowed: at most " +
                      std::to_string(kMaxCounted) + " where a grammar counts the characters");
      }
    }
    const std::string most = max_length < 0 ? "" : std::to_string(max_length);
    // Not in the form of other patterns: an automaton of counted characters is sound, and its masks take 0.1 ms, not 5.
    schema["pattern"] = R"([^"\\\x00-\x1f]{)" + std::to_string(min_length) + "," + most + "}";
  }

  void rewrite_array(ordered_json& schema, const std::string& path, int depth) {
    count(schema, "minItems", path, 0);
    count(schema, "maxItems", path, -1);
    const bool says_nothing = !schema.contains("items") && !schema.contains("prefixItems");
    if (says_nothing) schema["items"] = ordered_json::object();
    if (schema.contains("items") && !schema["items"].is_boolean())
      schema["items"] = rewrite(schema["items"], path + ".items", depth + 1);
    if (!schema.contains("prefixItems")) return;
    if (!schema["prefixItems"].is_array()) throw_invalid(path + ".prefixItems: a list of schemas is needed");
    ordered_json items = ordered_json::array();
    for (std::size_t i = 0; i < schema["prefixItems"].size(); ++i)
      items.push_back(rewrite(schema["prefixItems"][i], path + ".prefixItems[" + std::to_string(i) + "]", depth + 1));
    schema["prefixItems"] = items;
  }

  ordered_json rewrite_each(const ordered_json& schemas, const std::string& path, int depth) {
    if (!schemas.is_object()) throw_invalid(path + ": an object is needed");
    ordered_json result = ordered_json::object();
    for (const auto& [name, schema] : schemas.items()) result[name] = rewrite(schema, path + "." + name, depth + 1);
    return result;
  }

  void rewrite_object(ordered_json& schema, const std::string& path, int depth) {
    for (const char* key : {"properties", "patternProperties"}) {
      if (schema.contains(key)) schema[key] = rewrite_each(schema[key], path + "." + key, depth);
    }
    if (schema.contains("patternProperties")) {
      ordered_json by_pattern = ordered_json::object();
      for (const auto& [pattern, value] : schema["patternProperties"].items())
        by_pattern[rewritten_pattern(pattern, path + ".patternProperties")] = value;
      schema["patternProperties"] = by_pattern;
    }
    for (const char* key : {"additionalProperties", "propertyNames"}) {
      if (schema.contains(key) && !schema[key].is_boolean()) schema[key] = rewrite(schema[key], path + "." + key, depth + 1);
    }
    const bool lists_none = !schema.contains("properties") && !schema.contains("patternProperties") &&
                            !schema.contains("additionalProperties") && !schema.contains("propertyNames");
    if (lists_none) schema["additionalProperties"] = true;
    for (const char* key : {"minProperties", "maxProperties"}) count(schema, key, path, 0);
    if (!schema.contains("required")) return;
    if (!schema["required"].is_array()) throw_invalid(path + ".required: a list of names is needed");
    for (const ordered_json& name : schema["required"]) {
      if (!name.is_string()) throw_invalid(path + ".required: " + shown(name) + " is no name");
      const auto& key = name.get_ref<const std::string&>();
      const bool is_listed = schema.contains("properties") && schema["properties"].contains(key);
      if (!is_listed) schema["properties"][key] = unlisted_property(schema);
    }
  }

  /// What a required property has to be that `properties` does not list.
  static ordered_json unlisted_property(const ordered_json& object) {
    const bool has_schema = object.contains("additionalProperties") && object["additionalProperties"].is_object();
    return has_schema ? object["additionalProperties"] : ordered_json::object();
  }

  static constexpr int64_t kMaxCounted = 64;  // each takes 70 ms to compile with a vocabulary of 248,320

  const ordered_json* root_;
  UnenforcedKeywords unenforced_;
  const SchemaLimits* limits_;
  int64_t num_schemas_ = 0;
};

}  // namespace

ordered_json enforceable_schema(const ordered_json& schema, const std::string& path, UnenforcedKeywords unenforced,
                                const SchemaLimits& limits) {
  return Rewriter(schema, unenforced, limits).rewrite(schema, path);
}

}  // namespace ferry
