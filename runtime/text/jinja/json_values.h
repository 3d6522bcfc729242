#pragma once

#include <nlohmann/json_fwd.hpp>

#include "runtime/text/jinja/heap.h"

namespace ferry::jinja {

/// JSON as Python's json.loads() has it; keys keep their order. Malformed UTF-8 is replaced. Fails for what is nested too
/// deeply.
Value value_of(const nlohmann::ordered_json& json, Heap& heap);

}  // namespace ferry::jinja
