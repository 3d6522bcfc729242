#include "runtime/server/openai/info_routes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "runtime/base/quoting.h"
#include "runtime/net/percent_escape.h"
#include "runtime/server/api/answer.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/http/router.h"
#include "runtime/version.h"

namespace ferry::api::openai {
namespace {

/// Routers look at owned_by to learn how a server is to be spoken to, and this one is spoken to as vLLM is.
ordered_json model_json(const ApiSettings& settings, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", settings.start_time},
          {"owned_by", "vllm"},
          {"engine", "ferry"},
          {"root", settings.model_path},
          {"parent", nullptr},
          {"max_model_len", settings.context_length}};
}

std::string models_json(const ApiSettings& settings) {
  ordered_json list = ordered_json::array();
  for (const std::string& name : settings.model_names) list.push_back(model_json(settings, name));
  return dump({{"object", "list"}, {"data", std::move(list)}});
}

/// Answers for the model that the path names behind /models/. A name may hold slashes, escaped ("org%2Fname", as OpenAI's
/// client sends it) or not.
HttpResponse one_model(const ApiSettings& settings, std::string_view path) {
  constexpr std::string_view kFolder = "/models/";
  const std::string name = percent_decoded(path.substr(path.find(kFolder) + kFolder.size()));
  const auto& names = settings.model_names;
  if (std::find(names.begin(), names.end(), name) != names.end())
    return {.status = 200, .body = dump(model_json(settings, name))};
  return ApiError(404, "NotFoundError", "The model `" + whole_characters(name, 200) + "` does not exist.", "model").response();
}

HttpResponse ping(const EngineClient& engine) {
  const std::optional<Error> failure = engine.failure();
  return failure ? http_error(503, failure->what()) : HttpResponse{.status = 200, .body = "", .content_type = ""};
}

}  // namespace

void add_info_routes(HttpRouter& router, ApiContext& context) {
  const auto add = [&](const char* method, const std::string& path, HttpGuard guard, auto answer) {
    const auto handler = [answer](const HttpRequest& request, HttpReply reply) { reply.send(answer(request)); };
    router.add(method, path, {.handler = handler, .blocking = {}, .guard = guard});
  };
  const ApiSettings& settings = context.settings;
  const HttpResponse models{.status = 200, .body = models_json(settings)};
  for (const std::string prefix : {"/v1", ""}) {
    add("GET", prefix + "/models", HttpGuard::kGuarded, [models](const HttpRequest&) { return models; });
    add("GET", prefix + "/models/**", HttpGuard::kGuarded,
        [&settings](const HttpRequest& request) { return one_model(settings, request.path); });
  }
  const HttpResponse version{.status = 200, .body = dump({{"version", version_number()}})};
  add("GET", "/version", HttpGuard::kGuarded, [version](const HttpRequest&) { return version; });
  add("GET", "/load", HttpGuard::kGuarded, [&context](const HttpRequest&) {
    return HttpResponse{.status = 200, .body = dump({{"server_load", context.calls.count()}})};
  });
  for (const char* method : {"GET", "POST"})
    add(method, "/ping", HttpGuard::kOpen, [&context](const HttpRequest&) { return ping(context.engine); });
}

}  // namespace ferry::api::openai
