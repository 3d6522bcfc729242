#pragma once

#include <nlohmann/json_fwd.hpp>

#include "profiler/operator_facts.h"

// How capture.json has operators: {"name": "MatMul.q_proj", "layers": 10, "rows_per_token": 1, "factors": "values", "flop":
// [fixed, per row, per b, per key], "bytes": likewise, "inputs": [{"type": "DT_BF16", "dims": ["rows", 2048]}, …], "outputs":
// …}. Reading throws nlohmann's exceptions, as its own readers do.

namespace ferry {

void to_json(nlohmann::json& json, const OperatorFacts& facts);
void from_json(const nlohmann::json& json, OperatorFacts& facts);

}  // namespace ferry
