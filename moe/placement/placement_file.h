#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "moe/placement/placement_types.h"

// A placement as text: who holds what, by hand or from a run.
//
//   {"format": "ferry-placement", "version": 1, "num_experts": 4, "num_workers": 2, "layers": [[[0, 1], [2, 3, 0]], ...]}

namespace ferry {

struct PlacementFile {
  int64_t num_experts = 0;
  int64_t num_workers = 0;
  std::vector<LayerPlacement> layers;  // of num_workers each
};

std::string write_placement(const PlacementFile& placement);

/// `name` is for errors. Throws kInvalidArgument for what is not of this form and version, and for experts that are not there
/// or twice on one worker.
PlacementFile read_placement(std::string_view text, const std::string& name);

/// The same of a file, which has to be of a model with as many layers with experts and as many experts, for as many workers.
/// Throws kNotFound if it cannot be opened.
std::vector<LayerPlacement> read_placement_file(const std::filesystem::path& path, int64_t num_layers, int64_t num_experts,
                                                int64_t num_workers);

}  // namespace ferry
