#pragma once

#include <filesystem>
#include <functional>
#include <ostream>

namespace ferry {

/// Makes or replaces a file with what `write` puts into the stream. Throws Error{kUnavailable} that names the file and the
/// system's reason if not all of it could be written.
void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

}  // namespace ferry
