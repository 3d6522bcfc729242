#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// JSON's types of values, as a set: what a schema allows a value to be. Empty: the schema says nothing.
using JsonTypes = uint8_t;
inline constexpr JsonTypes kJsonString = 1;
inline constexpr JsonTypes kJsonInteger = 2;
inline constexpr JsonTypes kJsonNumber = 4;
inline constexpr JsonTypes kJsonBoolean = 8;
inline constexpr JsonTypes kJsonNull = 16;
inline constexpr JsonTypes kJsonObject = 32;
inline constexpr JsonTypes kJsonArray = 64;

/// A function that the model may call.
struct Tool {
  std::string name;
  std::string schema;  // JSON: what its arguments are; an object, "{}" without one
  bool strict = false;
  std::map<std::string, JsonTypes, std::less<>> argument_types;                   // of the schema's properties
  JsonTypes other_types = 0;                                                      // of arguments beside these
  std::map<std::string, std::vector<std::string>, std::less<>> argument_choices;  // texts that enum or const has, where any

  JsonTypes types_of(std::string_view argument) const;
  /// Null: any text.
  const std::vector<std::string>* choices_of(std::string_view argument) const;
};

struct ToolLimits {
  int64_t tools = 1024;
  int64_t name_bytes = 128;
  int64_t schema_bytes = 1 << 20;  // of all schemas together
};

/// The functions of a request, checked.
class ToolSet {
 public:
  ToolSet() = default;

  /// Reads OpenAI's list: {"type": "function", "function": {"name", "description"?, "parameters"?, "strict"?}}, …; null is an
  /// empty set. Throws Error{kInvalidArgument} with the path of what is wrong: an empty list, a name that is empty, is there
  /// twice or could not be written into a call (white space, control characters, < and >), a schema that is no object.
  static ToolSet parse(const nlohmann::ordered_json& tools, const ToolLimits& limits = {});

  const std::vector<Tool>& tools() const { return tools_; }
  bool empty() const { return tools_.empty(); }
  /// Null if there is none of that name.
  const Tool* find(std::string_view name) const;

 private:
  std::vector<Tool> tools_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

/// Which of the functions the reply is to call.
struct ToolChoice {
  enum class Kind { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;  // of kNamed

  /// Reads OpenAI's "auto", "none", "required" or {"type": "function", "function": {"name"}}; null is auto with tools and none
  /// without. Throws Error{kInvalidArgument} for others, for one that needs tools where there are none, and for a name that no
  /// tool has.
  static ToolChoice parse(const nlohmann::ordered_json& choice, const ToolSet& tools);
};

}  // namespace ferry
