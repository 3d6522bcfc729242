#pragma once

#include <string>

namespace ferry {

/// What `ferry --version` prints, a line each: Ferry's version, the instruction sets that this processor can run (best
/// first), the element types that oneDNN multiplies here, and the libraries that carry data between ranks.
std::string version_text();

}  // namespace ferry
