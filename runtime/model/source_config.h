#pragma once

#include "runtime/checkpoint/source_format.h"
#include "runtime/model/config_fields.h"

namespace ferry {

/// What quantization_config of a config.json says: fp8 in blocks (DeepSeek's form), gptq, awq, auto-round, and
/// compressed-tensors of integers (pack-quantized) or e4m3 (float-quantized). Plain without one. Which matrices are quantised,
/// their tensors tell, so lists of modules are not read; nor is how others quantise activations.
///
/// Throws Error{kInvalidArgument} naming key, value and what is allowed.
SourceFormat read_source_format(const ConfigFields& top);

}  // namespace ferry
