#pragma once

#include <string>

namespace ferry {

/// Such as "0.1.0".
const char* version_number();

/// What tells this very program from another build of it: its version and a hash of its file. Equal on ranks that run the same
/// program; they refuse to work together otherwise.
std::string program_identity();

/// What `ferry --version` prints, a line each: Ferry's version, the instruction sets that this processor can run (best
/// first), the element types that oneDNN multiplies here, the Vulkan devices that can be used, and the libraries that carry
/// data between ranks.
std::string version_text();

}  // namespace ferry
