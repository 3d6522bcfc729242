#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ferry {

/// How HTTP speaks OpenAI's API. The options have vLLM's names.
struct ApiOptions {
  std::vector<std::string> model_names;  // empty: the checkpoint folder's name
  bool uses_generation_config = true;    // for what a request's sampling does not say; false: OpenAI's own defaults
  std::string generation_override;       // JSON; empty: none
  std::string template_kwargs;           // JSON; empty: none
  int64_t max_logprobs = 20;             // -1: the whole vocabulary
  double keep_alive_s = 15;              // between comments on a silent stream; 0: none
  bool echoes_request_id = false;        // answers say X-Request-Id
};

void add_api_options(CLI::App& app, ApiOptions& options);

}  // namespace ferry
