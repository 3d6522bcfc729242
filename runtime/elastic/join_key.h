#pragma once

#include <filesystem>
#include <string>

namespace ferry {

/// The key that workers and their coordinator share: the file's text without white space around it, 16 to 4096 bytes; none for
/// an empty path. Throws Error{kInvalidArgument} or {kNotFound} that names the file.
std::string read_join_key(const std::filesystem::path& file);

}  // namespace ferry
