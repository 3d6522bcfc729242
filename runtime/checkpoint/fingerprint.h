#pragma once

#include <string>

#include "runtime/checkpoint/safetensors.h"

namespace ferry {

/// 16 hexadecimal digits that tell a checkpoint from another one: XXH3 of every tensor's name, type and shape, and of a few
/// hundred short pieces spread evenly over all bytes of weights. Reads about 1 MiB. Equal for copies of one checkpoint, however
/// they are cut into files.
std::string checkpoint_fingerprint(const Checkpoint& checkpoint);

}  // namespace ferry
