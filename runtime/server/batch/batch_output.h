#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_set>

#include "runtime/base/file_descriptor.h"

namespace ferry::batch {

/// The file of answers, which grows by whole lines: what it has when it is opened was answered before, and a last line that a
/// killed process left without its end is cut off. It is locked against other processes that would write to it. Of what is
/// answered it keeps the ids.
class BatchOutput {
 public:
  /// Throws Error for a file that cannot be written, is being written by another process, is the input `input_fd`, or holds
  /// anything that ferry batch does not write: such a file is left as it is.
  BatchOutput(const std::filesystem::path& path, int input_fd);

  bool has_answer_to(const std::string& custom_id) const { return ids_.contains(custom_id); }
  bool has_answer_to_line(int64_t line) const { return lines_.contains(line); }
  /// Lines that were there at the start.
  int64_t num_found() const { return num_found_; }
  /// Counts the complaints and the answers with errors among them.
  int64_t num_failed() const { return num_failed_; }
  /// Bytes of a last line that were cut off.
  int64_t num_cut_bytes() const { return num_cut_bytes_; }

  /// Appends a line. Throws Error, and leaves none of it, if it cannot be written.
  void add(std::string line);
  /// Returns when all lines are on the disk. Throws Error.
  void sync();

 private:
  void read_answers();
  void check_begin(std::string_view line) const;
  void note_done(std::string_view line);

  const std::string name_;
  FileDescriptor file_;
  int64_t bytes_ = 0;  // of whole lines
  int64_t num_found_ = 0, num_failed_ = 0, num_cut_bytes_ = 0;
  std::unordered_set<std::string> ids_;
  std::unordered_set<int64_t> lines_;
};

}  // namespace ferry::batch
