#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/options/server_limits.h"

namespace ferry::api {

using nlohmann::ordered_json;

/// Reads the fields of one JSON object of a request. null is as good as absent, and so is a field that nobody asks for. Errors
/// are ApiErrors of status 400 that name the field: with the path to this object, such as "stream_options.include_usage".
class RequestFields {
 public:
  /// Borrows `object`, which must be one.
  explicit RequestFields(const ordered_json& object, std::string path = "");

  bool has(const char* name) const { return find(name) != nullptr; }
  /// Null if it is not there.
  const ordered_json* find(const char* name) const;

  bool flag(const char* name, bool otherwise) const;
  /// A whole number, also one written as 3.0, of 64 bits.
  std::optional<int64_t> integer(const char* name) const;
  std::optional<int64_t> integer(const char* name, int64_t least, int64_t most) const;
  std::optional<double> number(const char* name) const;
  std::optional<double> number(const char* name, double least, double most) const;
  std::optional<std::string> string(const char* name) const;
  std::vector<std::string> strings(const char* name) const;
  std::vector<TokenId> token_ids(const char* name) const;
  std::optional<RequestFields> object(const char* name) const;

  /// Of a field, for messages.
  std::string path_of(const char* name) const { return path_ + name; }
  [[noreturn]] void refuse_kind(const char* name, const std::string& allowed) const;

 private:
  const ordered_json& object_;
  const std::string path_;  // empty, or ends with '.'
};

/// A token id of a JSON value, nothing if it is none.
std::optional<TokenId> token_id_of(const ordered_json& value);

/// The body of a request: one JSON object, or else an ApiError.
ordered_json read_body(std::string_view body, const ServerLimits& limits);

}  // namespace ferry::api
