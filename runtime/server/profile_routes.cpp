#include "runtime/server/profile_routes.h"

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/server/http/router.h"
#include "runtime/server/profile_control.h"
#include "runtime/server/profile_request.h"

namespace ferry {
namespace {

using nlohmann::json;

json start_profile(ProfileControl& control, const HttpRequest& request) {
  const StartProfile start = parse_start_profile(request.body);
  return {{"output_dir", control.start(start.plan, start.output_dir).string()}};
}

json stop_profile(ProfileControl& control, const HttpRequest& request) {
  return {{"output_dir", control.stop(parse_stop_profile(request.body).wait).string()}};
}

/// A POST route that answers with what `make` returns.
template <class Make>
void add_post(HttpRouter& router, const char* path, Make make) {
  const auto answer = [make](const HttpRequest& request) -> HttpResponse {
    return {.status = 200, .body = make(request).dump(-1, ' ', false, json::error_handler_t::replace) + "\n"};
  };
  router.add("POST", path, {.handler = {}, .blocking = answer});
}

}  // namespace

void add_profile_routes(HttpRouter& router, ProfileControl& control) {
  add_post(router, "/start_profile", [&control](const HttpRequest& request) { return start_profile(control, request); });
  add_post(router, "/stop_profile", [&control](const HttpRequest& request) { return stop_profile(control, request); });
}

}  // namespace ferry
