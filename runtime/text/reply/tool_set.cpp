#include "runtime/text/reply/tool_set.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxRefs = 16;               // references that lead to one another
constexpr int kMaxVisitedSchemas = 20000;  // of one tool: references can make few bytes many schemas

JsonTypes type_named(const std::string& name) {
  if (name == "string") return kJsonString;
  if (name == "integer") return kJsonInteger;
  if (name == "number") return kJsonInteger | kJsonNumber;
  if (name == "boolean") return kJsonBoolean;
  if (name == "null") return kJsonNull;
  if (name == "object") return kJsonObject;
  if (name == "array") return kJsonArray;
  return 0;
}

JsonTypes type_of_value(const ordered_json& value) {
  if (value.is_string()) return kJsonString;
  if (value.is_number_integer()) return kJsonInteger;
  if (value.is_number()) return kJsonInteger | kJsonNumber;
  if (value.is_boolean()) return kJsonBoolean;
  if (value.is_null()) return kJsonNull;
  return value.is_object() ? kJsonObject : kJsonArray;
}

const ordered_json* member(const ordered_json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

/// The strings among the values that a schema lists, by enum or const.
std::vector<std::string> listed_strings(const ordered_json& schema) {
  std::vector<std::string> texts;
  const ordered_json* values = member(schema, "enum");
  if (const ordered_json* value = member(schema, "const"); value != nullptr && value->is_string())
    return {value->get<std::string>()};
  if (values == nullptr || !values->is_array()) return texts;
  for (const ordered_json& value : *values) {
    if (value.is_string()) texts.push_back(value.get<std::string>());
  }
  return texts;
}

/// Finds the types that schemas of one document allow.
class TypeReader {
 public:
  explicit TypeReader(const ordered_json& root) : root_(&root) {}

  JsonTypes read(const ordered_json& schema, int num_refs = 0) {
    if (!schema.is_object() || num_refs > kMaxRefs || ++num_visited_ > kMaxVisitedSchemas) return 0;
    if (const ordered_json* ref = member(schema, "$ref")) {
      const ordered_json* target = resolve(*ref);
      return target == nullptr ? 0 : read(*target, num_refs + 1);
    }
    if (const ordered_json* type = member(schema, "type")) return named_types(*type);
    if (const ordered_json* value = member(schema, "const")) return type_of_value(*value);
    if (const ordered_json* values = member(schema, "enum")) return types_of_values(*values);
    for (const char* key : {"anyOf", "oneOf"}) {
      const ordered_json* branches = member(schema, key);
      if (branches != nullptr && branches->is_array()) return types_of_branches(*branches, num_refs);
    }
    if (const ordered_json* parts = member(schema, "allOf"); parts != nullptr && parts->is_array()) {
      for (const ordered_json& part : *parts) {
        if (const JsonTypes types = read(part, num_refs)) return types;
      }
    }
    if (member(schema, "properties") != nullptr) return kJsonObject;
    return member(schema, "items") != nullptr ? kJsonArray : 0;
  }

  /// Behind its references; null if one leads nowhere.
  const ordered_json* behind_refs(const ordered_json& schema) const {
    const ordered_json* found = &schema;
    for (int i = 0; found != nullptr; ++i) {
      const ordered_json* ref = member(*found, "$ref");
      if (ref == nullptr) return found;
      found = i < kMaxRefs ? resolve(*ref) : nullptr;
    }
    return nullptr;
  }

 private:
  /// What a reference inside the document ("#/$defs/NAME") names, null if nothing.
  const ordered_json* resolve(const ordered_json& ref) const {
    if (!ref.is_string() || !ref.get_ref<const std::string&>().starts_with('#')) return nullptr;
    try {
      const ordered_json::json_pointer pointer(ref.get_ref<const std::string&>().substr(1));
      return root_->contains(pointer) ? &root_->at(pointer) : nullptr;
    } catch (const ordered_json::exception&) {
      return nullptr;
    }
  }

  static JsonTypes named_types(const ordered_json& type) {
    JsonTypes types = 0;
    if (type.is_string()) types = type_named(type.get_ref<const std::string&>());
    if (!type.is_array()) return types;
    for (const ordered_json& name : type) types |= name.is_string() ? type_named(name.get_ref<const std::string&>()) : 0;
    return types;
  }

  static JsonTypes types_of_values(const ordered_json& values) {
    JsonTypes types = 0;
    if (!values.is_array()) return types;
    for (const ordered_json& value : values) types |= type_of_value(value);
    return types;
  }

  JsonTypes types_of_branches(const ordered_json& branches, int num_refs) {
    JsonTypes types = 0;
    for (const ordered_json& branch : branches) {
      const JsonTypes branch_types = read(branch, num_refs);
      types |= branch_types == 0 ? kJsonString : branch_types;  // whatever it is, it can be written as text
    }
    return types;
  }

  const ordered_json* root_;
  int num_visited_ = 0;
};

void read_argument_types(const ordered_json& schema, Tool& tool) {
  TypeReader reader(schema);
  const ordered_json* object = reader.behind_refs(schema);
  if (object == nullptr) return;
  const ordered_json* properties = member(*object, "properties");
  if (properties != nullptr && properties->is_object()) {
    for (const auto& [name, property] : properties->items()) {
      tool.argument_types[name] = reader.read(property);
      const ordered_json* whole = reader.behind_refs(property);
      std::vector<std::string> choices = whole == nullptr ? std::vector<std::string>() : listed_strings(*whole);
      if (!choices.empty()) tool.argument_choices[name] = std::move(choices);
    }
  }
  if (const ordered_json* others = member(*object, "additionalProperties")) tool.other_types = reader.read(*others);
}

bool can_be_written(std::string_view name) {
  return std::none_of(name.begin(), name.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte <= ' ' || byte == 0x7F || c == '<' || c == '>';
  });
}

std::string read_name(const ordered_json& function, const std::string& path, const ToolLimits& limits) {
  const ordered_json* name = member(function, "name");
  if (name == nullptr || !name->is_string()) throw_invalid(path + ".name: a string is needed");
  const auto& text = name->get_ref<const std::string&>();
  if (text.empty()) throw_invalid(path + ".name: is empty");
  if (static_cast<int64_t>(text.size()) > limits.name_bytes) {
    throw_invalid(path + ".name: has " + std::to_string(text.size()) + " bytes; allowed: at most " +
                  std::to_string(limits.name_bytes));
  }
  if (!can_be_written(text))
    throw_invalid(path + ".name: " + in_quotes(text) + " has white space, a control character, < or >");
  return text;
}

Tool read_tool(const ordered_json& entry, const std::string& path, const ToolLimits& limits) {
  const ordered_json* type = member(entry, "type");
  if (type == nullptr || *type != "function") throw_invalid(path + ".type: only \"function\" is supported");
  const ordered_json* function = member(entry, "function");
  const std::string inner = path + ".function";
  if (function == nullptr || !function->is_object()) throw_invalid(inner + ": an object is needed");
  Tool tool{.name = read_name(*function, inner, limits), .schema = "{}"};
  if (const ordered_json* strict = member(*function, "strict"); strict != nullptr && !strict->is_null()) {
    if (!strict->is_boolean()) throw_invalid(inner + ".strict: true or false is needed");
    tool.strict = strict->get<bool>();
  }
  const ordered_json* parameters = member(*function, "parameters");
  if (parameters == nullptr || parameters->is_null()) return tool;
  if (!parameters->is_object()) throw_invalid(inner + ".parameters: a JSON schema (an object) is needed");
  tool.schema = parameters->dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  read_argument_types(*parameters, tool);
  return tool;
}

}  // namespace

const std::vector<std::string>* Tool::choices_of(std::string_view argument) const {
  const auto found = argument_choices.find(argument);
  return found == argument_choices.end() ? nullptr : &found->second;
}

JsonTypes Tool::types_of(std::string_view argument) const {
  const auto found = argument_types.find(argument);
  return found == argument_types.end() ? other_types : found->second;
}

ToolSet ToolSet::parse(const ordered_json& tools, const ToolLimits& limits) {
  ToolSet set;
  if (tools.is_null()) return set;
  if (!tools.is_array()) throw_invalid("tools: a list is needed");
  if (tools.empty()) throw_invalid("`tools` must not be an empty array. Leave the field out instead");
  if (static_cast<int64_t>(tools.size()) > limits.tools) {
    throw_invalid("tools: there are " + std::to_string(tools.size()) + "; allowed: at most " + std::to_string(limits.tools));
  }
  int64_t schema_bytes = 0;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string path = "tools[" + std::to_string(i) + "]";
    Tool tool = read_tool(tools[i], path, limits);
    schema_bytes += static_cast<int64_t>(tool.schema.size());
    if (schema_bytes > limits.schema_bytes) {
      throw_invalid("tools: their schemas have more than " + std::to_string(limits.schema_bytes) + " bytes");
    }
    if (!set.index_.emplace(tool.name, i).second) {
      throw_invalid(path + ".function.name: " + in_quotes(tool.name) + " is there twice");
    }
    set.tools_.push_back(std::move(tool));
  }
  return set;
}

const Tool* ToolSet::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tools_[found->second];
}

ToolChoice ToolChoice::parse(const ordered_json& choice, const ToolSet& tools) {
  if (choice.is_null()) return {.kind = tools.empty() ? Kind::kNone : Kind::kAuto};
  if (choice == "none") return {.kind = Kind::kNone};
  if (tools.empty()) throw_invalid("When using `tool_choice`, `tools` must be set.");
  if (choice == "auto") return {.kind = Kind::kAuto};
  if (choice == "required") return {.kind = Kind::kRequired};
  const ordered_json* function = member(choice, "function");
  const ordered_json* name = function == nullptr ? nullptr : member(*function, "name");
  const ordered_json* type = member(choice, "type");
  if (type == nullptr || *type != "function" || name == nullptr || !name->is_string()) {
    throw_invalid("tool_choice: " + shown(choice) +
                  R"( is not supported; it may be "auto", "none", "required" or {"type":"function","function":{"name":NAME}})");
  }
  const auto& text = name->get_ref<const std::string&>();
  if (tools.find(text) == nullptr) throw_invalid("tool_choice: no tool is called " + in_quotes(text));
  return {.kind = Kind::kNamed, .name = text};
}

}  // namespace ferry
