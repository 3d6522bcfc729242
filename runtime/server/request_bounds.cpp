#include "runtime/server/request_bounds.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kRequestIdBytesMax = 128;
constexpr int64_t kCacheSaltBytesMax = 256;

}  // namespace

void refuse_size(const std::string& what, int64_t size, const std::string& unit, int64_t allowed) {
  throw_invalid(what + " has " + std::to_string(size) + " " + unit + "; allowed: at most " + std::to_string(allowed));
}

void check_request_id(const std::string& field, const std::string& id) {
  if (std::ssize(id) > kRequestIdBytesMax) refuse_size(field, std::ssize(id), "bytes", kRequestIdBytesMax);
  const auto bad = std::find_if(id.begin(), id.end(), [](char c) { return c < '!' || c > '~'; });
  if (bad == id.end()) return;
  throw_invalid(field + " has a byte of value " + std::to_string(static_cast<unsigned char>(*bad)) + " at position " +
                std::to_string(bad - id.begin()) + "; allowed: printable ASCII without spaces");
}

void check_cache_salt(const std::string& field, const std::string& salt) {
  if (std::ssize(salt) > kCacheSaltBytesMax) refuse_size(field, std::ssize(salt), "bytes", kCacheSaltBytesMax);
}

}  // namespace ferry
