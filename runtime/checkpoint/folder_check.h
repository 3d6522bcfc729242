#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/thread_pool.h"

namespace ferry {

/// The result for one file.
struct FileCheck {
  enum class Result : uint8_t {
    kRight,    // its bytes have their checksums
    kUnknown,  // its structure is right, but its bytes have no checksums
    kDamaged,  // or added: it has no checksums in a folder whose other files have them
    kMissing,
  };

  std::string name;     // in the folder
  int64_t bytes = 0;    // of the file; 0 if it cannot be read
  int64_t tensors = 0;  // of a file of weights
  Result result = Result::kUnknown;
  std::string damage{};  // the first, in one line that names file and tensor; empty if there is none
};

/// Reads all of a checkpoint folder that has checksums, weights by all threads of `pool`, and compares it with them. A file
/// that loading would use though it has no checksums counts as damage, and so does a missing mark. Of a folder without
/// checksums, headers, sizes and the index are checked. Files come in the order of their reading.
///
/// Throws Error{kNotFound} for a folder that is not there, and as Checkpoint::open() does if a folder without checksums is
/// malformed.
std::vector<FileCheck> check_folder(const std::filesystem::path& dir, ThreadPool& pool);

}  // namespace ferry
