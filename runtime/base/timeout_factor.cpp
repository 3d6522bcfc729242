#include "runtime/base/timeout_factor.h"

#include <atomic>
#include <charconv>
#include <string_view>

namespace ferry {
namespace {

std::atomic<int> current_factor{1};

}  // namespace

std::optional<int> parse_timeout_factor(const char* text) {
  if (text == nullptr) return 1;
  const std::string_view digits = text;
  int factor = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), factor);
  if (error != std::errc() || end != digits.end() || factor < 1 || factor > kMaxTimeoutFactor) return std::nullopt;
  return factor;
}

void set_timeout_factor(int factor) { current_factor = factor; }

int timeout_factor() { return current_factor; }

}  // namespace ferry
