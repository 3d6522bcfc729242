#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/model_info.h"
#include "runtime/options/api_options.h"
#include "runtime/options/server_limits.h"

namespace ferry {
class EngineClient;
}

namespace ferry::api {

/// What all requests of the server share; constant once it runs.
struct ApiSettings {
  std::vector<std::string> model_names;                                       // requests may give any; answers give the first
  std::string model_path;                                                     // as the operator gave it
  GenerationDefaults defaults;                                                // of sampling, where a request says nothing
  nlohmann::ordered_json template_kwargs = nlohmann::ordered_json::object();  // where a request gives no others
  int64_t context_length = 0;                                                 // tokens of prompt and completion together
  int64_t vocab_size = 0;
  int64_t max_logprobs = 20;       // of one position; SamplingParams::kWholeVocabulary: no bound
  double keep_alive_s = 15;        // of a stream's silence; 0: for ever
  bool echoes_request_id = false;  // X-Request-Id
  bool takes_priorities = false;   // other than 0
  std::string fingerprint;         // of this program, such as ferry-0.1.0
  int64_t start_time = 0;          // seconds since 1970
  ServerLimits limits;
};

/// Throws what make_settings() would for these options, before something that takes long.
void check_settings(const ApiOptions& options);

/// Throws Error{kInvalidArgument} that names the option whose JSON is none.
ApiSettings make_settings(const ApiOptions& options, const std::string& model_path, const EngineClient& engine,
                          const ServerLimits& limits);

}  // namespace ferry::api
