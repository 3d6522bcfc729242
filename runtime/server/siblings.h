#pragma once

#include <span>

#include "runtime/schedule/request.h"

namespace ferry {

/// Tells requests of one prompt that they belong together.
void make_siblings(std::span<Request> requests);

}  // namespace ferry
