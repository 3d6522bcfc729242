#pragma once

#include <string>
#include <vector>

#include "runtime/model_info.h"

namespace ferry::vllm {

/// What vLLM's services tell of the model and assume of requests; constant once the server runs.
struct Settings {
  std::vector<std::string> model_names;  // requests may give any, the first one is told; empty: the checkpoint folder's name
  std::string model_path;                // of the checkpoint's folder; empty: it is not told, nor are the tokenizer's files
  GenerationDefaults defaults;           // of sampling
};

}  // namespace ferry::vllm
