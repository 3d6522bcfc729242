#include "moe/placement/json_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry::placement {

using nlohmann::json;

void refuse(const std::string& where, const json& value, const std::string& allowed) {
  throw_invalid(where + " is " + shown(value) + "; allowed: " + allowed);
}

const json& member(const json& object, const char* key, const std::string& name) {
  const auto found = object.find(key);
  if (found == object.end()) throw_invalid(name + ": no " + key);
  return *found;
}

void require_members(const json& object, std::initializer_list<const char*> keys, const std::string& name) {
  if (!object.is_object()) refuse(name, object, "an object");
  for (const char* key : keys) member(object, key, name);
  if (object.size() == keys.size()) return;
  for (const auto& item : object.items()) {
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end())
      throw_invalid(name + ": unknown " + json(item.key()).dump());
  }
}

int64_t whole_number(const json& value, const std::string& where, int64_t min, int64_t max) {
  if (!value.is_number_integer() || value < min || value > max) {
    refuse(where, value, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return value.get<int64_t>();
}

const json& list_of(const json& value, const std::string& where, int64_t min, int64_t max) {
  if (!value.is_array() || static_cast<int64_t>(value.size()) < min || static_cast<int64_t>(value.size()) > max) {
    refuse(where, value, "a list of " + (min == max ? "" : std::to_string(min) + " to ") + std::to_string(max));
  }
  return value;
}

std::string at(const std::string& where, int64_t index) { return where + "[" + std::to_string(index) + "]"; }

}  // namespace ferry::placement
