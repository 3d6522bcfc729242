#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "launch/draft_bench.h"

// The rows of `ferry bench --speculate`, of so many sequences.

namespace ferry {

void print_draft_row(int64_t batch, const DraftGain& gain);
nlohmann::ordered_json draft_row_json(int64_t batch, const DraftGain& gain);

}  // namespace ferry
