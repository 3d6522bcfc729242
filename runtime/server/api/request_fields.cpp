#include "runtime/server/api/request_fields.h"

#include <cmath>
#include <limits>
#include <utility>

#include "runtime/base/json.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/http/json_limits.h"

namespace ferry::api {
namespace {

constexpr int64_t kMembersMax = 1024;  // of one object; each new one is compared with all before it

std::optional<int64_t> whole_number(const ordered_json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const bool is_whole = std::trunc(number) == number && std::abs(number) <= kExact;
  return is_whole ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
}

std::string number_text(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

RequestFields::RequestFields(const ordered_json& object, std::string path) : object_(object), path_(std::move(path)) {}

const ordered_json* RequestFields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void RequestFields::refuse_kind(const char* name, const std::string& allowed) const {
  refuse_form(path_of(name), path_of(name) + " is " + shown(*find(name)) + "; allowed: " + allowed);
}

bool RequestFields::flag(const char* name, bool otherwise) const {
  const ordered_json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse_kind(name, "true, false");
  return value->get<bool>();
}

std::optional<int64_t> RequestFields::integer(const char* name) const {
  const ordered_json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = whole_number(*value);
  if (!number) refuse_kind(name, "an integer");
  return number;
}

std::optional<int64_t> RequestFields::integer(const char* name, int64_t least, int64_t most) const {
  const std::optional<int64_t> number = integer(name);
  if (!number || (*number >= least && *number <= most)) return number;
  const std::string range = most == std::numeric_limits<int64_t>::max() ? "at least " + std::to_string(least)
                                                                        : std::to_string(least) + " to " + std::to_string(most);
  refuse(path_of(name), path_of(name) + " is " + std::to_string(*number) + "; allowed: " + range);
}

std::optional<double> RequestFields::number(const char* name) const {
  const ordered_json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse_kind(name, "a number");
  return value->get<double>();
}

std::optional<double> RequestFields::number(const char* name, double least, double most) const {
  const std::optional<double> value = number(name);
  if (!value || (*value >= least && *value <= most)) return value;
  const std::string range =
      std::isinf(most) ? "a finite number of at least " + number_text(least) : number_text(least) + " to " + number_text(most);
  refuse(path_of(name), path_of(name) + " is " + shown(*find(name)) + "; allowed: " + range);
}

std::optional<std::string> RequestFields::string(const char* name) const {
  const ordered_json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_kind(name, "a string");
  return value->get<std::string>();
}

std::vector<std::string> RequestFields::strings(const char* name) const {
  const ordered_json* value = find(name);
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  if (!value->is_array()) refuse_kind(name, "a list of strings");
  for (const ordered_json& text : *value) {
    if (!text.is_string()) refuse_kind(name, "a list of strings");
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

std::vector<TokenId> RequestFields::token_ids(const char* name) const {
  const ordered_json* value = find(name);
  std::vector<TokenId> ids;
  if (value == nullptr) return ids;
  if (!value->is_array()) refuse_kind(name, "a list of token ids");
  ids.reserve(value->size());
  for (const ordered_json& item : *value) {
    const std::optional<TokenId> id = token_id_of(item);
    if (!id) refuse_form(path_of(name), path_of(name) + " holds " + shown(item) + "; allowed: token ids");
    ids.push_back(*id);
  }
  return ids;
}

std::optional<RequestFields> RequestFields::object(const char* name) const {
  const ordered_json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) refuse_kind(name, "an object");
  return RequestFields(*value, path_of(name) + ".");
}

std::optional<TokenId> token_id_of(const ordered_json& value) {
  const std::optional<int64_t> number = whole_number(value);
  if (!number || *number < 0 || *number > std::numeric_limits<TokenId>::max()) return std::nullopt;
  return static_cast<TokenId>(*number);
}

ordered_json read_body(std::string_view body, const ServerLimits& limits) {
  if (body.empty()) refuse_form("", "the body is empty; allowed: a JSON object");
  ordered_json object;
  try {
    JsonLimits json_limits = model_json_limits(limits);
    json_limits.members = kMembersMax;
    object = parse_ordered_json(body, "body", json_limits);
  } catch (const Error& error) {
    refuse_form("", error.what());
  }
  if (!object.is_object()) refuse_form("", "the body is " + shown(object) + "; allowed: a JSON object");
  return object;
}

}  // namespace ferry::api
