#include "runtime/options/api_options.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/options/option_checks.h"

namespace ferry {
namespace {

/// Of a JSON object.
std::string check_object(const std::string& text) {
  try {
    const nlohmann::json value = parse_json(text, "value", {.depth = 16, .bytes = 1 << 16, .values = 1 << 12});
    return value.is_object() ? "" : complaint(text, "a JSON object");
  } catch (const Error&) {
    return complaint(text, "a JSON object");
  }
}

}  // namespace

void add_api_options(CLI::App& app, ApiOptions& options) {
  const char* group = "OpenAI's API over HTTP";
  app.add_option("--served-model-name", options.model_names,
                 "NAME… by which requests call the model; answers give the first; default: the checkpoint folder's name")
      ->check([](const std::string& name) { return name.empty() ? complaint(name, "a name") : std::string(); })
      ->group(group);
  app.add_option_function<std::string>(
         "--generation-config", [&options](const std::string& source) { options.uses_generation_config = source == "auto"; },
         "where sampling that a request does not say comes from: auto (generation_config.json) or vllm (temperature 1, all "
         "else off); default auto")
      ->check(one_of({"auto", "vllm"}))
      ->group(group);
  app.add_option("--override-generation-config", options.generation_override,
                 "JSON object of sampling that counts before generation_config.json's, such as {\"temperature\":0.5}")
      ->check(check_object)
      ->group(group);
  app.add_option("--default-chat-template-kwargs", options.template_kwargs,
                 "JSON object of the template's variables where a request gives no others, such as {\"enable_thinking\":false}")
      ->check(check_object)
      ->group(group);
  app.add_option("--max-logprobs", options.max_logprobs,
                 "likeliest tokens of a position that a request may ask for; -1: all; default 20")
      ->check(integer_in(-1, 1 << 20))
      ->group(group);
  app.add_option("--sse-keep-alive-interval", options.keep_alive_s,
                 "seconds of silence after which a stream gets a comment; 0: never; default 15")
      ->check(number_in(0.0, 86400.0, "0 to 86400 seconds"))
      ->group(group);
  app.add_flag("--enable-request-id-headers", options.echoes_request_id, "answers carry the request's X-Request-Id")
      ->group(group);
}

}  // namespace ferry
