#include "runtime/base/random_id.h"

#include <sys/random.h>

#include <array>
#include <cstdint>

#include "runtime/base/check.h"

namespace ferry {

namespace {

/// Up to 256 bytes come at once and uninterrupted, once the system has gathered entropy at its own start.
void fill_random(void* bytes, std::size_t num_bytes) {
  FERRY_CHECK_EQ(getrandom(bytes, num_bytes, 0), static_cast<ssize_t>(num_bytes));
}

}  // namespace

std::string random_id() {
  std::array<uint8_t, 16> bytes{};
  fill_random(bytes.data(), bytes.size());
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) text.append({kDigits[byte >> 4], kDigits[byte & 15]});
  return text;
}

uint64_t random_seed() {
  uint64_t seed = 0;
  fill_random(&seed, sizeof(seed));
  return seed;
}

}  // namespace ferry
