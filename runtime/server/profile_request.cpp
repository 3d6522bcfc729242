#include "runtime/server/profile_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/quoting.h"
#include "runtime/trace/trace_wire.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr JsonLimits kBodyLimits{.depth = 4, .bytes = 1 << 16, .values = 64, .duplicates = DuplicateKeys::kRefuse};

/// The body as an object; an empty one is {}. Throws for anything else, and for fields that are not `allowed`.
json read_object(std::string_view text, const std::vector<std::string>& allowed) {
  if (text.empty()) return json::object();
  const json body = parse_json(text, "body", kBodyLimits);
  if (!body.is_object()) throw_invalid("the body is not a JSON object; allowed: one, or none");
  std::string names;
  for (const std::string& name : allowed) names += (names.empty() ? "" : ", ") + name;
  for (const auto& [name, value] : body.items()) {
    if (std::find(allowed.begin(), allowed.end(), name) == allowed.end())
      throw_invalid("field " + in_quotes(name) + " is unknown; allowed: " + names);
  }
  return body;
}

/// Null if it is not there.
json field(const json& body, const char* name) {
  const auto found = body.find(name);
  return found == body.end() ? json() : *found;
}

int64_t integer_field(const json& body, const char* name, int64_t otherwise) {
  const json value = field(body, name);
  if (value.is_null()) return otherwise;
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  if (!fits) throw_invalid(std::string(name) + " is " + shown(value) + "; allowed: an integer of 64 bits");
  return value.get<int64_t>();
}

std::string string_field(const json& body, const char* name) {
  const json value = field(body, name);
  if (value.is_null()) return "";
  if (!value.is_string()) throw_invalid(std::string(name) + " is " + shown(value) + "; allowed: a string");
  return value.get<std::string>();
}

bool flag_field(const json& body, const char* name) {
  const json value = field(body, name);
  if (value.is_null()) return false;
  if (!value.is_boolean()) throw_invalid(std::string(name) + " is " + shown(value) + "; allowed: true, false");
  return value.get<bool>();
}

}  // namespace

StartProfile parse_start_profile(std::string_view body) {
  const json object = read_object(body, {"output_dir", "start_step", "num_steps", "level", "max_bytes", "routing"});
  const TracePlan defaults;
  return {.plan = {.level = parse_trace_level(integer_field(object, "level", static_cast<int64_t>(defaults.level))),
                   .max_bytes = integer_field(object, "max_bytes", defaults.max_bytes),
                   .delay_steps = integer_field(object, "start_step", 0),
                   .num_steps = integer_field(object, "num_steps", 0),
                   .routing = flag_field(object, "routing")},
          .output_dir = string_field(object, "output_dir")};
}

StopProfile parse_stop_profile(std::string_view body) { return {.wait = flag_field(read_object(body, {"wait"}), "wait")}; }

TraceLevel parse_trace_level(int64_t level) {
  if (level < 0 || level > 2) throw_invalid("level is " + std::to_string(level) + "; allowed: 0, 1, 2");
  return static_cast<TraceLevel>(level);
}

void check_plan(const TracePlan& plan) {
  const auto require = [](bool ok, const char* field, int64_t value, const std::string& allowed) {
    if (!ok) throw_invalid(std::string(field) + " is " + std::to_string(value) + "; allowed: " + allowed);
  };
  require(plan.delay_steps >= 0, "start_step", plan.delay_steps, "0 or more");
  require(plan.num_steps >= 0, "num_steps", plan.num_steps, "0 (until it is stopped) or more");
  require(plan.max_bytes >= 1024 && plan.max_bytes <= kMaxTraceMemoryBytes, "max_bytes", plan.max_bytes,
          "1024 to " + std::to_string(kMaxTraceMemoryBytes));
}

}  // namespace ferry
