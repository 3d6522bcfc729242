#pragma once

#include <filesystem>

namespace ferry {

/// Returns the folder in which a user's programs keep what others must not read: "ferry" in $XDG_RUNTIME_DIR, if that is an
/// absolute folder of the user's that is open to nobody else, or "ferry-UID" in the temporary folder. The argument is the
/// variable's value, null if it is not set. The folder need not be there yet.
std::filesystem::path runtime_folder(const char* xdg_runtime_dir);

}  // namespace ferry
