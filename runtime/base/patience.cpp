#include "runtime/base/patience.h"

#include <atomic>
#include <charconv>
#include <string_view>

namespace ferry {
namespace {

std::atomic<int> current_patience{1};

}  // namespace

std::optional<int> parse_patience(const char* text) {
  if (text == nullptr) return 1;
  const std::string_view digits = text;
  int times = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), times);
  if (error != std::errc() || end != digits.end() || times < 1 || times > kMostPatience) return std::nullopt;
  return times;
}

void set_patience(int times) { current_patience = times; }

int patience() { return current_patience; }

}  // namespace ferry
