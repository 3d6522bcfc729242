#pragma once

#include <filesystem>
#include <string>

#include "tests/fuzz/targets.h"

namespace ferry::fuzz {

/// A folder of this process in the system's memory (/dev/shm), for readers that take a checkpoint's folder: an input costs two
/// system calls and no disk. Removed when the process ends in order.
class MemoryFolder {
 public:
  MemoryFolder();
  ~MemoryFolder();
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, std::string_view content) const;
  /// Removes what is in it.
  void clear() const;

 private:
  std::filesystem::path path_;
};

}  // namespace ferry::fuzz
