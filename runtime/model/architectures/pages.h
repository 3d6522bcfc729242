#pragma once

#include "runtime/model/architectures/architecture.h"

// One line a page of this folder; architecture.cpp lists them.

namespace ferry {

extern const Architecture kQwen35Moe;
extern const Architecture kQwen35;
extern const Architecture kQwen3Next;
extern const Architecture kQwen3Moe;
extern const Architecture kLfm2;
extern const Architecture kLfm2Moe;

}  // namespace ferry
