#pragma once

#include <filesystem>
#include <string>

namespace ferry {

/// The key that workers and their coordinator share: the file's text without white space around it, 16 to 4096 bytes; none for
/// an empty path. Throws Error{kInvalidArgument} or {kNotFound} that names the file.
std::string read_join_key(const std::filesystem::path& file);

/// The key of the user who runs this process, by which the user's programs on this host know each other. It is in the file
/// "join.key" of mode 0600 in `folder`, which has mode 0700. Folder and file are made if they are missing; processes that do so
/// at once get the same key. Throws Error{kFailedPrecondition} that names the path if the key cannot be made or read, if folder
/// or file are links, belong to somebody else or are open to others.
std::string own_join_key(const std::filesystem::path& folder);

/// Places that a worker and its coordinator may have their key from.
struct JoinKeySource {
  std::filesystem::path key_file;    // as given; empty: none was
  std::filesystem::path own_folder;  // of own_join_key(); empty: that is not used
};

/// The key for `address`, HOST:PORT or unix:NAME: that of the key file, else the user's own if `address` names this host alone,
/// else none. Throws as the above, and Error{kInvalidArgument} for an address that is none.
std::string join_key_for(const std::string& address, const JoinKeySource& source);

}  // namespace ferry
