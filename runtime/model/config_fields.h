#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/base/types.h"

namespace ferry {

constexpr int64_t kMaxDim = int64_t{1} << 24;  // far above any real width; keeps products of widths within int64

/// Typed access to one JSON object that outlives this. Every error is Error{kInvalidArgument} and names the key, its value and
/// what is allowed. A key whose value is null counts as absent.
class ConfigFields {
 public:
  /// `where` begins the messages: "config.json".
  ConfigFields(const nlohmann::json& object, std::string where);

  bool has(const char* key) const;
  const nlohmann::json& at(const char* key) const;
  int64_t integer(const char* key, int64_t min, int64_t max) const;
  int64_t integer_or(const char* key, int64_t fallback, int64_t min, int64_t max) const;
  double number(const char* key, double above, double max) const;
  bool boolean_or(const char* key, bool fallback) const;
  /// At most `most` integers from 0 to `max`; empty if the key is absent.
  std::vector<int64_t> integers(const char* key, int64_t max, std::size_t most) const;
  /// The fields of the object under `key`.
  ConfigFields object(const char* key) const;
  /// Refuses every value but the allowed ones; an absent key is fine.
  void expect(const char* key, std::initializer_list<nlohmann::json> allowed) const;
  [[noreturn]] void fail(const char* key, const std::string& allowed) const;

  const std::string& where() const { return where_; }

 private:
  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace ferry
