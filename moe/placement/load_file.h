#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "moe/placement/load_windows.h"

// Loads as text, so that a run can begin with the placement that an earlier one would have come to, and so that others' tools
// can read them.
//
//   {"format": "ferry-expert-load", "version": 1, "num_layers": 2, "num_experts": 4, "num_steps": 10,
//    "rows": [[10, 4, 0, 6], [2, 8, 8, 2]], "touched": [[9, 3, 0, 5], [2, 7, 8, 2]]}

namespace ferry {

inline constexpr int64_t kLoadLayersMax = 1024;
inline constexpr int64_t kLoadExpertsMax = 8192;
inline constexpr int64_t kLoadWindowsMax = int64_t{1} << 16;
inline constexpr int64_t kLoadFileBytesMax = int64_t{1} << 26;

std::string write_expert_loads(const ExpertLoads& loads);

/// `name` is for errors. Throws kInvalidArgument for what is not of this form and version, for counts that cannot be (less than
/// 0, an expert touched in more steps than there were or with fewer rows than steps that touched it) and for what is beyond the
/// bounds.
ExpertLoads read_expert_loads(std::string_view text, const std::string& name);

/// The same of a file, which has to be of a model with as many layers with experts and as many experts. Throws kNotFound if it
/// cannot be opened.
ExpertLoads read_expert_load_file(const std::filesystem::path& path, int64_t num_layers, int64_t num_experts);

/// The record as nested lists under the name of vLLM's tensor: {"expert_load_window": [num_windows][num_layers][num_experts]}.
std::string write_load_record(const LoadRecord& record);
/// Reads what write_load_record writes. Throws kInvalidArgument for anything else, within the bounds above.
LoadRecord read_load_record(std::string_view text, const std::string& name);

/// What DeepSeek's eplb.rebalance_experts takes: {"weight": [num_layers][num_experts]}, the rows summed over the windows.
std::string write_deepseek_weight(const LoadRecord& record);

}  // namespace ferry
