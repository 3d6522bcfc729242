#pragma once

#include <string>
#include <string_view>

#include "runtime/model/config.h"
#include "runtime/model/config_fields.h"
#include "runtime/model/tensor_names.h"

namespace ferry {

/// One family of models: its page says what its config means, where its tensors are, and what is refused.
struct Architecture {
  const char* model_type;       // of config.json
  const char* text_model_type;  // of its text_config, or of a checkpoint of the text part alone; nullptr: the same
  /// Fills norm, layers and the plans of the layers' parts. `config` has what all families share (config.h). Throws as
  /// ConfigFields does.
  void (*read)(const ConfigFields& text, ModelConfig& config);
  TensorNames names;
};

/// By config.json's model_type; nullptr if it is none of them.
const Architecture* find_architecture(std::string_view model_type);

/// "qwen3_5_moe, qwen3_5_moe_text, …": what config.json's model_type may be.
std::string architecture_list();

}  // namespace ferry
