#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ferry {

/// A folder that is being filled. Unless it is kept, it goes again with the files that were put into it.
class OutputFolder {
 public:
  /// Makes the folder, whose parent must be there, or takes an empty one. Throws Error{kInvalidArgument} that names --out for
  /// anything else, Error{kFailedPrecondition} if it cannot be made.
  explicit OutputFolder(const std::filesystem::path& path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The path of a file that is about to be written.
  std::filesystem::path add(const std::string& name);
  void keep() { is_kept_ = true; }

 private:
  std::filesystem::path path_;
  std::vector<std::filesystem::path> files_;
  bool is_new_ = false;
  bool is_kept_ = false;
};

}  // namespace ferry
