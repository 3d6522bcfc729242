#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/source_folder.h"

namespace ferry::test {

/// What transformers computed of the tests' models, a folder each, and the demo model.
inline const std::filesystem::path kGoldenFolder = source_folder() / "tests" / "golden";
inline const std::filesystem::path kDemoFolder = source_folder() / "launch" / "demo";

/// Throws nlohmann::json::exception if it is no JSON.
inline nlohmann::json read_json(const std::filesystem::path& path) { return nlohmann::json::parse(std::ifstream(path)); }

}  // namespace ferry::test
