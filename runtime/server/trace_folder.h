#pragma once

#include <filesystem>
#include <string>

namespace ferry {

/// The one folder below which clients of a server may have captures written.
class TraceFolder {
 public:
  /// `root` is the operator's: it is made when it is first needed, and may itself be reached through links.
  explicit TraceFolder(std::filesystem::path root);

  const std::filesystem::path& root() const { return root_; }  // absolute

  /// Makes the root if it is not there. Throws Error{kFailedPrecondition} if it cannot be made or written to.
  void require_root() const;

  /// Makes the folder that a client asked for (relative to the root, or absolute and below it), ready for a capture, and
  /// returns its absolute path. Throws Error{kInvalidArgument} for the root itself, for what is not below it by name, and where
  /// a part of the path, or anything in the folder, is a symbolic link; {kFailedPrecondition} if it cannot be used or holds a
  /// capture already.
  std::filesystem::path claim(const std::filesystem::path& asked) const;

 private:
  std::filesystem::path relative(const std::filesystem::path& asked) const;

  const std::filesystem::path root_;
};

}  // namespace ferry
