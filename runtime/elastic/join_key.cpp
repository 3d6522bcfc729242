#include "runtime/elastic/join_key.h"

#include "runtime/base/error.h"
#include "runtime/base/text_file.h"

namespace ferry {
namespace {

constexpr std::size_t kLeastBytes = 16, kMostBytes = 4096;
constexpr const char* kSpace = " \t\r\n";

}  // namespace

std::string read_join_key(const std::filesystem::path& file) {
  if (file.empty()) return "";
  const std::string text = read_text_file(file, 2 * kMostBytes);
  const std::size_t first = text.find_first_not_of(kSpace);
  const std::string key = first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
  if (key.size() < kLeastBytes || key.size() > kMostBytes) {
    throw_invalid("the key in " + file.string() + " has " + std::to_string(key.size()) +
                  " bytes; allowed: " + std::to_string(kLeastBytes) + " to " + std::to_string(kMostBytes));
  }
  return key;
}

}  // namespace ferry
