#pragma once

#include <cstdint>
#include <vector>

#include "runtime/schedule/request.h"

namespace ferry {

/// What the units of `unit_tokens` tokens of a request's prompt are beside their tokens: which parts of which pictures and
/// videos they stand for, and in the first one the cache_salt. Only units that have any.
std::vector<UnitContent> unit_contents(const Request& request, int64_t unit_tokens);

}  // namespace ferry
