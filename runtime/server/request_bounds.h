#pragma once

#include <cstdint>
#include <iterator>
#include <string>

#include "runtime/options/server_limits.h"

// What strings of a request for tokens may be, whatever gRPC service it came to. All throw Error{kInvalidArgument} that names
// the field, its size and what is allowed.

namespace ferry {

[[noreturn]] void refuse_size(const std::string& what, int64_t size, const std::string& unit, int64_t allowed);

/// Ids appear in error messages, logs and traces.
void check_request_id(const std::string& field, const std::string& id);
void check_cache_salt(const std::string& field, const std::string& salt);

/// `stops` is a list of strings.
template <class Strings>
void check_stop_strings(const std::string& field, const Strings& stops, const ServerLimits& limits) {
  if (std::ssize(stops) > limits.stop_strings) refuse_size(field, std::ssize(stops), "strings", limits.stop_strings);
  int64_t i = 0;
  for (const std::string& stop : stops) {
    if (std::ssize(stop) > limits.stop_bytes)
      refuse_size(field + "[" + std::to_string(i) + "]", std::ssize(stop), "bytes", limits.stop_bytes);
    ++i;
  }
}

}  // namespace ferry
