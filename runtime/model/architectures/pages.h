#pragma once

#include "runtime/model/architectures/architecture.h"

// One line a page of this folder; architecture.cpp lists them.

namespace ferry {

extern const Architecture kQwen35Moe;

}  // namespace ferry
