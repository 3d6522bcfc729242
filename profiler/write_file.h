#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <ostream>

#include "runtime/base/file_descriptor.h"

namespace ferry {

/// Makes or replaces the file that an option names with what `write` puts into the stream. Follows symbolic links, and takes
/// devices such as /dev/stdout. Throws Error{kUnavailable} that names the file and the system's reason if not all of it could
/// be written.
void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

/// Opens a new file for writing, in a folder that somebody else may have made, such as a capture. Removes a regular file of
/// that name first, so nothing that is linked to it changes. Throws Error{kFailedPrecondition} if something else has that name.
FileDescriptor make_file_anew(const std::filesystem::path& path);
/// The same as write_file() for such a file.
void write_file_anew(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

/// Returns the first symbolic link in `folder` or a folder in it, through which files would be written elsewhere. `folder`
/// itself may be a link. Throws Error{kFailedPrecondition} if it cannot be looked through.
std::optional<std::filesystem::path> find_link_in(const std::filesystem::path& folder);
/// Throws Error{kFailedPrecondition} if there is one.
void refuse_links_in(const std::filesystem::path& folder);

}  // namespace ferry
