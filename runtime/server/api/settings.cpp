#include "runtime/server/api/settings.h"

#include <chrono>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/server/engine_client.h"
#include "runtime/version.h"

namespace ferry::api {
namespace {

using nlohmann::ordered_json;

constexpr JsonLimits kOptionLimits{.depth = 16, .bytes = 1 << 16, .values = 1 << 12, .members = 256};

/// The object that an option holds, {} if it is empty.
ordered_json read_option(const char* option, const std::string& text) {
  ordered_json object = text.empty() ? ordered_json::object() : parse_ordered_json(text, option, kOptionLimits);
  if (!object.is_object()) throw_invalid(std::string(option) + ": " + shown(object) + "; allowed: a JSON object");
  return object;
}

void set_from_options(const ApiOptions& options, GenerationDefaults& defaults) {
  if (!options.generation_override.empty())
    override_sampling(options.generation_override, "--override-generation-config", defaults);
}

ordered_json template_kwargs_of(const ApiOptions& options) {
  return read_option("--default-chat-template-kwargs", options.template_kwargs);
}

int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

void check_settings(const ApiOptions& options) {
  GenerationDefaults unused;
  set_from_options(options, unused);
  template_kwargs_of(options);
}

ApiSettings make_settings(const ApiOptions& options, const std::string& model_path, const EngineClient& engine,
                          const ServerLimits& limits) {
  const ModelInfo& model = engine.model_info();
  ApiSettings settings;
  settings.model_names = options.model_names;
  if (settings.model_names.empty()) settings.model_names = {model.name};
  settings.model_path = model_path;
  if (options.uses_generation_config) settings.defaults = model.generation;
  set_from_options(options, settings.defaults);
  settings.template_kwargs = template_kwargs_of(options);
  settings.context_length = engine.prompt_bounds().max_tokens + 1;
  settings.vocab_size = model.vocab_size;
  settings.max_logprobs = options.max_logprobs;
  settings.keep_alive_s = options.keep_alive_s;
  settings.takes_priorities = model.takes_priorities;
  settings.echoes_request_id = options.echoes_request_id;
  settings.fingerprint = std::string("ferry-") + version_number();
  settings.start_time = seconds_now();
  settings.limits = limits;
  return settings;
}

}  // namespace ferry::api
