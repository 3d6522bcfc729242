#include "runtime/server/profile_routes.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/quoting.h"
#include "runtime/server/http/router.h"
#include "runtime/server/profile_control.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr JsonLimits kBodyLimits{.depth = 4, .bytes = 1 << 16, .values = 64, .duplicates = DuplicateKeys::kRefuse};

/// The body as an object; an empty one is {}. Throws for anything else, and for fields that are not `allowed`.
json read_body(const HttpRequest& request, const std::vector<std::string>& allowed) {
  if (request.body.empty()) return json::object();
  const json body = parse_json(request.body, "body", kBodyLimits);
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

json start_profile(ProfileControl& control, const HttpRequest& request) {
  const json body = read_body(request, {"output_dir", "start_step", "num_steps", "level", "max_bytes"});
  const TracePlan defaults;
  const TracePlan plan{.level = parse_trace_level(integer_field(body, "level", static_cast<int64_t>(defaults.level))),
                       .max_bytes = integer_field(body, "max_bytes", defaults.max_bytes),
                       .delay_steps = integer_field(body, "start_step", 0),
                       .num_steps = integer_field(body, "num_steps", 0)};
  return {{"output_dir", control.start(plan, string_field(body, "output_dir")).string()}};
}

json stop_profile(ProfileControl& control, const HttpRequest& request) {
  const json body = read_body(request, {"wait"});
  return {{"output_dir", control.stop(flag_field(body, "wait")).string()}};
}

/// A POST route that answers with what `make` returns.
template <class Make>
void add_post(HttpRouter& router, const char* path, Make make) {
  const auto answer = [make](const HttpRequest& request) -> HttpResponse {
    return {.status = 200, .body = make(request).dump(-1, ' ', false, json::error_handler_t::replace) + "\n"};
  };
  router.add("POST", path, {.handler = {}, .blocking = answer});
}

}  // namespace

void add_profile_routes(HttpRouter& router, ProfileControl& control) {
  add_post(router, "/start_profile", [&control](const HttpRequest& request) { return start_profile(control, request); });
  add_post(router, "/stop_profile", [&control](const HttpRequest& request) { return stop_profile(control, request); });
}

}  // namespace ferry
