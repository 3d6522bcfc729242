#include "runtime/model/config_fields.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {

using nlohmann::json;

ConfigFields::ConfigFields(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

bool ConfigFields::has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

const json& ConfigFields::at(const char* key) const {
  if (!has(key)) throw_invalid(where_ + ": missing key '" + key + "'");
  return object_[key];
}

int64_t ConfigFields::integer(const char* key, int64_t min, int64_t max) const {
  const json& value = at(key);
  const int64_t number = value.is_number_integer() ? value.get<int64_t>() : std::numeric_limits<int64_t>::min();
  if (number < min || number > max) fail(key, "an integer from " + std::to_string(min) + " to " + std::to_string(max));
  return number;
}

int64_t ConfigFields::integer_or(const char* key, int64_t fallback, int64_t min, int64_t max) const {
  return has(key) ? integer(key, min, max) : fallback;
}

double ConfigFields::number(const char* key, double above, double max) const {
  const json& value = at(key);
  const double x = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(x > above && x <= max)) fail(key, "a number above " + std::to_string(above) + ", at most " + std::to_string(max));
  return x;
}

bool ConfigFields::boolean_or(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!at(key).is_boolean()) fail(key, "true or false");
  return at(key).get<bool>();
}

std::vector<int64_t> ConfigFields::integers(const char* key, int64_t max, std::size_t most) const {
  if (!has(key)) return {};
  const json& value = at(key);
  const auto is_good = [max](const json& x) {
    return x.is_number_integer() && x.get<int64_t>() >= 0 && x.get<int64_t>() <= max;
  };
  if (!value.is_array() || value.size() > most || !std::all_of(value.begin(), value.end(), is_good))
    fail(key, "a list of at most " + std::to_string(most) + " integers from 0 to " + std::to_string(max));
  return value.get<std::vector<int64_t>>();
}

ConfigFields ConfigFields::object(const char* key) const {
  if (!at(key).is_object()) fail(key, "an object");
  return {at(key), where_ + ": " + key};
}

void ConfigFields::expect(const char* key, std::initializer_list<json> allowed) const {
  if (!has(key) || std::find(allowed.begin(), allowed.end(), at(key)) != allowed.end()) return;
  std::string list;
  for (const json& value : allowed) list += (list.empty() ? "" : " or ") + value.dump();
  fail(key, list);
}

void ConfigFields::fail(const char* key, const std::string& allowed) const {
  throw_invalid(where_ + ": " + key + " is " + (has(key) ? shown(object_[key]) : "missing") + "; allowed: " + allowed);
}

}  // namespace ferry
