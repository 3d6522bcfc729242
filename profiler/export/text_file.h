#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/file_descriptor.h"

namespace ferry {

/// `text` as a JSON string with its quotes. Braces become parentheses: MindStudio Insight counts them without regard to
/// strings.
std::string quoted_json(std::string_view text);

/// `text` with U+FFFD for what is no UTF-8.
std::string repaired_text(std::string_view text);

/// A text file that is written from front to back. Numbers that are counted (ns, bytes) are printed exactly in larger units.
class TextFile {
 public:
  /// Throws Error{kUnavailable} with the system's reason if the file cannot be made.
  explicit TextFile(const std::filesystem::path& path);

  TextFile& operator<<(std::string_view text);
  TextFile& operator<<(int64_t number);
  /// `"name": `, where `name` needs no quoting.
  TextFile& key(std::string_view name) { return *this << "\"" << name << "\": "; }
  /// number / 10^decimals with all its decimals: decimals 3 prints ns as us, 6 prints ns as ms and bytes as MB.
  TextFile& scaled(int64_t number, int decimals);
  /// With exactly that many decimals.
  TextFile& rounded(double number, int decimals);

  /// Ends the file. Throws Error{kUnavailable} with the system's reason if anything did not reach it.
  void close();

 private:
  void flush();

  std::filesystem::path path_;
  FileDescriptor out_;
  std::string buffer_;
};

}  // namespace ferry
