#include "profiler/export/text_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>
#include <system_error>

#include "profiler/write_file.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

[[noreturn]] void throw_unwritable(const std::filesystem::path& path) {
  throw Error(ErrorCode::kUnavailable, "'" + path.string() + "' cannot be written: " + std::generic_category().message(errno));
}

}  // namespace

std::string quoted_json(std::string_view text) {
  std::string plain(text);
  std::replace(plain.begin(), plain.end(), '{', '(');
  std::replace(plain.begin(), plain.end(), '}', ')');
  return nlohmann::json(plain).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string repaired_text(std::string_view text) {
  const nlohmann::json raw = std::string(text);
  const std::string quoted = raw.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return parse_json(quoted, "a text", {}).get<std::string>();
}

TextFile::TextFile(const std::filesystem::path& path) : path_(path), out_(make_file_anew(path)) {}

TextFile& TextFile::operator<<(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) flush();
  return *this;
}

TextFile& TextFile::operator<<(int64_t number) {
  char digits[24];
  return *this << std::string_view(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

TextFile& TextFile::scaled(int64_t number, int decimals) {
  if (number < 0) *this << "-";
  char digits[24];
  const auto magnitude = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  const std::string_view all(digits, std::to_chars(digits, digits + sizeof digits, magnitude).ptr);
  const auto num_decimals = static_cast<std::size_t>(decimals);
  if (all.size() > num_decimals) {
    return *this << all.substr(0, all.size() - num_decimals) << "." << all.substr(all.size() - num_decimals);
  }
  return *this << "0." << std::string_view("000000000").substr(0, num_decimals - all.size()) << all;
}

TextFile& TextFile::rounded(double number, int decimals) {
  char digits[400];  // the longest double has 309 digits before the point
  return *this << std::string_view(
             digits, std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed, decimals).ptr);
}

void TextFile::flush() {
  for (std::string_view left = buffer_; !left.empty();) {
    const ssize_t count = ::write(out_.get(), left.data(), left.size());
    if (count < 0 && errno != EINTR) throw_unwritable(path_);
    left.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  buffer_.clear();
}

void TextFile::close() {
  flush();
  if (::close(out_.release()) != 0) throw_unwritable(path_);
}

}  // namespace ferry
