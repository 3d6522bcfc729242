#include "runtime/checkpoint/output_folder.h"

#include <system_error>

#include "runtime/base/error.h"

namespace ferry {

OutputFolder::OutputFolder(const std::filesystem::path& path) : path_(path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    is_new_ = std::filesystem::create_directory(path, error);
    if (is_new_) return;
    throw Error(ErrorCode::kFailedPrecondition, "--out: cannot make the folder '" + path.string() + "': " + error.message());
  }
  const bool is_folder = std::filesystem::is_directory(path, error);
  if (!is_folder || !std::filesystem::is_empty(path, error) || error) {
    throw_invalid("--out: '" + path.string() + "' is " + (is_folder ? "not empty" : "no folder") +
                  "; allowed: a folder that is not there or has nothing in it");
  }
}

OutputFolder::~OutputFolder() {
  if (is_kept_) return;
  std::error_code ignored;  // what cannot be removed stays; it has no mark
  for (const std::filesystem::path& file : files_) std::filesystem::remove(file, ignored);
  if (is_new_) std::filesystem::remove(path_, ignored);
}

std::filesystem::path OutputFolder::add(const std::string& name) { return files_.emplace_back(path_ / name); }

}  // namespace ferry
