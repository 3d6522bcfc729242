#include "runtime/base/random_id.h"

#include <sys/random.h>

#include <array>
#include <cstdint>

#include "runtime/base/check.h"

namespace ferry {

std::string random_id() {
  std::array<uint8_t, 16> bytes{};
  // Up to 256 bytes come at once and uninterrupted, once the system has gathered entropy at its own start.
  FERRY_CHECK_EQ(getrandom(bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) text.append({kDigits[byte >> 4], kDigits[byte & 15]});
  return text;
}

}  // namespace ferry
