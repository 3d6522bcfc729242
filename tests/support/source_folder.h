#pragma once

#include <filesystem>

namespace ferry::test {

/// The root of the source tree, where tests find goldens and the demo checkpoint.
std::filesystem::path source_folder();

}  // namespace ferry::test
