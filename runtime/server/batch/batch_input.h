#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/file_descriptor.h"

namespace ferry::batch {

/// The file of requests, read line by line as they are asked for: it holds one line, and a piece of the file.
class BatchInput {
 public:
  struct Line {
    int64_t number = 0;        // from 1
    std::string text;          // without its end
    bool is_too_long = false;  // and therefore left out
    int64_t end = 0;           // bytes of the file up to and with it
  };

  /// Throws Error for a file that cannot be read, or is none. Longer lines than `max_line_bytes` are skipped.
  BatchInput(const std::filesystem::path& path, int64_t max_line_bytes);

  /// The next line that is not empty; nothing at the end. Throws Error if the file cannot be read on.
  std::optional<Line> next();

  const std::string& name() const { return name_; }
  int64_t bytes() const { return bytes_; }
  int fd() const { return file_.get(); }

 private:
  bool fill();
  bool take_piece(Line& line);

  const std::string name_;
  const std::size_t max_line_bytes_;
  FileDescriptor file_;
  int64_t bytes_ = 0;  // of the file when it was opened
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what is left in the buffer
  int64_t num_read_ = 0;             // bytes that lines have had
  int64_t num_lines_ = 0;
};

}  // namespace ferry::batch
