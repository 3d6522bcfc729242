#pragma once

#include <string>

#include "runtime/checkpoint/safetensors.h"

namespace ferry {

/// 16 hexadecimal digits that tell a checkpoint from another one: XXH3 of every tensor's name, type and shape, and of its
/// weights: all of them up to 256 MiB; of more, 4 KiB at the start of every tensor and at each 4096th part of all weights
/// behind it, so that a change of a few bytes may stay unseen. Equal for copies of one checkpoint, however they are cut into
/// files.
std::string checkpoint_fingerprint(const Checkpoint& checkpoint);

}  // namespace ferry
