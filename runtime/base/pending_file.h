#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace ferry {

/// A file that is being written under a temporary name beside its own, which it gets when it is whole; removed unless commit()
/// is reached. All throw Error{kResourceExhausted} on a full disk and Error{kFailedPrecondition} if the path cannot be written.
class PendingFile {
 public:
  explicit PendingFile(const std::filesystem::path& path);
  ~PendingFile();
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void write(std::span<const std::byte> data);
  void commit();

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  std::string temporary_;
  int fd_ = -1;
  bool committed_ = false;
};

}  // namespace ferry
