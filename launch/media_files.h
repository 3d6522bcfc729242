#pragma once

#include <memory>
#include <vector>

#include "runtime/media_intake.h"
#include "runtime/options/generate_options.h"

namespace ferry {

/// Throws Error that names a file of --image or --video that is not there or cannot be opened; reads none.
void check_media_files(const GenerateOptions& options);

/// Reads the files of --image and --video: pictures, then videos, each in order. Throws Error that names the file.
std::vector<std::shared_ptr<const Medium>> read_media_files(const GenerateOptions& options, const MediaIntake& intake);

}  // namespace ferry
