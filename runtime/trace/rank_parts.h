#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "moe/token_dispatcher.h"
#include "profiler/capture.h"
#include "profiler/clock_sync.h"

// What the coordinator makes a capture of: the parts that ranks handed in, and what it knows of experts itself.

namespace ferry {

/// The part of a rank of whom nothing could be had, and why.
RankCapture absent_rank(const RankCapture& own, int32_t rank, const std::string& boot_id, const std::string& complaint);

/// What `rank` handed in, on the time of the coordinator, whose part `own` is; `exchanges` are those that were made for the
/// clocks' sake, none on the coordinator's host. Throws Error{kInvalidArgument} that names the rank for bytes that are damaged.
RankCapture place_rank(const RankCapture& own, int32_t rank, std::span<const std::byte> bytes, const std::string& boot_id,
                       const std::vector<ClockExchange>& exchanges);

/// Who holds which experts; nothing where all are the coordinator's own and so none travel.
HolderFacts holders_of(const ExpertPlacement& placement);
/// [num_experts] of the first layer: the rank that holds each.
std::vector<int32_t> first_ranks_of(const ExpertPlacement& placement);

/// [layer][expert] rows since the start, and since `then`.
std::vector<std::vector<int64_t>> tokens_of(const ExpertLoad& load);
std::vector<std::vector<int64_t>> tokens_since(const std::vector<std::vector<int64_t>>& then, const ExpertLoad& load);

}  // namespace ferry
