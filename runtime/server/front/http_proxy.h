#pragma once

#include <memory>
#include <string>

#include "runtime/options/server_limits.h"
#include "runtime/server/front/coordinator_pool.h"
#include "runtime/server/front/front_mark.h"
#include "runtime/server/http/router.h"
#include "runtime/server/task_pool.h"

namespace ferry {

class HttpClient;

/// What routes that are a coordinator's to answer share. All of it must outlive the HTTP server.
struct HttpProxyContext {
  CoordinatorPool& pool;
  HttpClient& client;
  TaskPool& readers;  // of bodies
  const ServerLimits& limits;
  const FrontMark& mark;
};

/// Adds the routes of OpenAI's and Anthropic's APIs that coordinators have. A request goes to the coordinator that
/// CoordinatorPool chooses, as it came but for headers that are about this connection or its Host and Origin; the answer comes
/// back as it comes. A client that goes ends the coordinator's call. One that this front has passed on before is 508.
///
/// A call of which the client has no byte yet is given to another coordinator, kTriesMax in all, if the first one cannot be
/// reached, breaks off, or answers 503 or 508. One that breaks off later ends as a coordinator's own stream would: with an
/// event of its API's error, or else with the connection.
void add_proxy_routes(HttpRouter& router, HttpProxyContext& context);

inline constexpr int kTriesMax = 3;

}  // namespace ferry
