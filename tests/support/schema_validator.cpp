#include "tests/support/schema_validator.h"

#include <algorithm>
#include <cmath>
#include <regex>

namespace ferry::test {
namespace {

using nlohmann::json;

bool has_type(const json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer() || (value.is_number() && std::floor(value.get<double>()) == value);
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "object" ? value.is_object() : value.is_array();
}

/// Characters of UTF-8.
int64_t length(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

bool matches(const std::string& text, const std::string& pattern) { return std::regex_search(text, std::regex(pattern)); }

bool matches_format(const std::string& text, const std::string& format) {
  if (format == "date") return matches(text, R"(^\d{4}-\d\d-\d\d$)");
  if (format == "time") return matches(text, R"(^\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$)");
  if (format == "date-time") return matches(text, R"(^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$)");
  if (format == "uuid") return matches(text, R"(^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$)");
  if (format == "ipv4") return matches(text, R"(^(\d{1,3}\.){3}\d{1,3}$)");
  if (format == "email") return matches(text, R"(^[^@\s"]+@[A-Za-z0-9.-]+$)");
  if (format == "hostname") return matches(text, R"(^[A-Za-z0-9.-]+$)");
  if (format == "uri") return matches(text, R"(^[a-z]+://\S+$)");
  if (format == "duration") return matches(text, R"(^P(?=.)(\d+W|(\d+D)?(T(\d+H)?(\d+M)?(\d+S)?)?)$)");
  return false;  // none that a test has
}

class Validator {
 public:
  explicit Validator(const json& root) : root_(root) {}

  std::string check(const json& value, const json& schema) const {
    if (schema.is_boolean()) return schema.get<bool>() ? "" : "nothing is allowed";
    if (schema.contains("$ref")) {
      const std::string why = check(value, root_.at(json::json_pointer(schema["$ref"].get<std::string>().substr(1))));
      if (!why.empty()) return why;
    }
    for (const auto part : {&Validator::check_any, &Validator::check_branches, &Validator::check_string,
                            &Validator::check_number, &Validator::check_array, &Validator::check_object}) {
      const std::string why = (this->*part)(value, schema);
      if (!why.empty()) return why + " (" + value.dump() + " under " + schema.dump() + ")";
    }
    return "";
  }

 private:
  std::string check_any(const json& value, const json& schema) const {
    if (schema.contains("const") && value != schema["const"]) return "const";
    if (schema.contains("enum") && std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
      return "enum";
    if (!schema.contains("type")) return "";
    const json types = schema["type"].is_array() ? schema["type"] : json::array({schema["type"]});
    return std::any_of(types.begin(), types.end(), [&](const json& type) { return has_type(value, type); }) ? "" : "type";
  }

  std::string check_branches(const json& value, const json& schema) const {
    const auto num_valid = [&](const char* key) {
      return std::count_if(schema[key].begin(), schema[key].end(),
                           [&](const json& branch) { return check(value, branch).empty(); });
    };
    if (schema.contains("anyOf") && num_valid("anyOf") == 0) return "anyOf";
    if (schema.contains("oneOf") && num_valid("oneOf") != 1) return "oneOf";
    if (schema.contains("allOf") && num_valid("allOf") != static_cast<int64_t>(schema["allOf"].size())) return "allOf";
    return "";
  }

  std::string check_string(const json& value, const json& schema) const {
    if (!value.is_string()) return "";
    const std::string text = value;
    if (length(text) < schema.value("minLength", int64_t{0})) return "minLength";
    if (length(text) > schema.value("maxLength", INT64_MAX)) return "maxLength";
    if (schema.contains("pattern") && !matches(text, schema["pattern"])) return "pattern";
    if (schema.contains("format") && !matches_format(text, schema["format"])) return "format";
    return "";
  }

  std::string check_number(const json& value, const json& schema) const {
    if (!value.is_number()) return "";
    if (schema.contains("minimum") && value < schema["minimum"]) return "minimum";
    if (schema.contains("maximum") && value > schema["maximum"]) return "maximum";
    if (schema.contains("exclusiveMinimum") && value <= schema["exclusiveMinimum"]) return "exclusiveMinimum";
    if (schema.contains("exclusiveMaximum") && value >= schema["exclusiveMaximum"]) return "exclusiveMaximum";
    if (schema.contains("multipleOf") && std::fmod(value.get<double>(), schema["multipleOf"].get<double>()) != 0)
      return "multipleOf";
    return "";
  }

  std::string check_array(const json& value, const json& schema) const {
    if (!value.is_array()) return "";
    if (static_cast<int64_t>(value.size()) < schema.value("minItems", int64_t{0})) return "minItems";
    if (static_cast<int64_t>(value.size()) > schema.value("maxItems", INT64_MAX)) return "maxItems";
    const json first = schema.value("prefixItems", json::array());
    const json others = schema.contains("items") ? schema["items"] : json(true);
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string why = check(value[i], i < first.size() ? first[i] : others);
      if (!why.empty()) return why;
    }
    return "";
  }

  std::string check_object(const json& value, const json& schema) const {
    if (!value.is_object()) return "";
    if (static_cast<int64_t>(value.size()) < schema.value("minProperties", int64_t{0})) return "minProperties";
    if (static_cast<int64_t>(value.size()) > schema.value("maxProperties", INT64_MAX)) return "maxProperties";
    const json required = schema.value("required", json::array());
    for (const json& name : required) {
      if (!value.contains(name.get<std::string>())) return "required";
    }
    for (const auto& [name, member] : value.items()) {
      const std::string why = check_member(name, member, schema);
      if (!why.empty()) return why;
    }
    return "";
  }

  std::string check_member(const std::string& name, const json& member, const json& schema) const {
    if (schema.contains("propertyNames")) {
      const std::string why = check(name, schema["propertyNames"]);
      if (!why.empty()) return why;
    }
    bool is_listed = schema.contains("properties") && schema["properties"].contains(name);
    if (is_listed) {
      const std::string why = check(member, schema["properties"][name]);
      if (!why.empty()) return why;
    }
    const json by_pattern = schema.value("patternProperties", json::object());
    for (const auto& [pattern, inner] : by_pattern.items()) {
      if (!matches(name, pattern)) continue;
      is_listed = true;
      const std::string why = check(member, inner);
      if (!why.empty()) return why;
    }
    return is_listed || !schema.contains("additionalProperties") ? "" : check(member, schema["additionalProperties"]);
  }

  const json& root_;
};

}  // namespace

std::string invalid(const json& value, const json& schema) { return Validator(schema).check(value, schema); }

std::string invalid_text(const std::string& text, const json& schema) {
  try {
    return invalid(json::parse(text), schema);
  } catch (const json::out_of_range&) {
    return "";
  } catch (const json::parse_error& error) {
    return error.what();
  }
}

}  // namespace ferry::test
