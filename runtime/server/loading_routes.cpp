#include "runtime/server/loading_routes.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace ferry {
namespace {

constexpr double kUnknownWait = 5, kLongestWait = 60;  // seconds; OpenAI's clients wait no longer than a minute

int percent_of(const LoadingState& state) {
  if (state.total_bytes <= 0) return 0;
  const double share = static_cast<double>(state.done_bytes) / static_cast<double>(state.total_bytes);
  return static_cast<int>(100 * std::clamp(share, 0.0, 1.0));
}

/// Seconds until it is worth while to ask again: what is left at the speed so far.
int wait_of(const LoadingState& state) {
  if (state.done_bytes <= 0 || state.total_bytes <= 0) return static_cast<int>(kUnknownWait);
  const double left = static_cast<double>(state.total_bytes - state.done_bytes) / static_cast<double>(state.done_bytes);
  return static_cast<int>(std::ceil(std::clamp(left * state.elapsed_s, 1.0, kLongestWait)));
}

HttpResponse with_retry(HttpResponse response, const LoadingState& state) {
  response.headers.emplace_back("Retry-After", std::to_string(wait_of(state)));
  return response;
}

HttpResponse health(const LoadingState& state) {
  const nlohmann::ordered_json body{{"status", "loading"},
                                    {"percent", percent_of(state)},
                                    {"loaded_bytes", state.done_bytes},
                                    {"total_bytes", state.total_bytes}};
  return with_retry({.status = 503, .body = body.dump() + "\n"}, state);
}

/// A rank that has all of its weights waits for the others, whose progress it does not know.
std::string progress_of(const LoadingState& state) {
  const int percent = percent_of(state);
  return percent == 100 ? "other ranks still read" : std::to_string(percent) + " %";
}

HttpResponse refusal(const LoadingState& state, HttpRewording reword) {
  HttpResponse response = http_error(
      503, "the model is being loaded (" + progress_of(state) + "); try again in " + std::to_string(wait_of(state)) + " s");
  if (reword != nullptr) reword(response);
  return with_retry(std::move(response), state);
}

}  // namespace

void add_loading_routes(HttpRouter& router, LoadingProbe probe, const std::vector<RewordedPath>& reworded) {
  const auto add = [&](const std::string& path, HttpGuard guard, HttpRewording reword, auto answer) {
    const auto handler = [probe, reword, answer](const HttpRequest&, HttpReply reply) { reply.send(answer(probe(), reword)); };
    for (const char* method : {"GET", "POST", "PUT", "PATCH", "DELETE"})
      router.add(method, path, {.handler = handler, .blocking = {}, .guard = guard, .reword = reword});
  };
  const auto tell_health = [](const LoadingState& state, HttpRewording) { return health(state); };
  for (const char* path : {"/health", "/ping"}) add(path, HttpGuard::kOpen, nullptr, tell_health);
  add("/metrics", HttpGuard::kNoKey, nullptr, refusal);
  for (const char* path : {"/version", "/load", "/status.json"}) add(path, HttpGuard::kGuarded, nullptr, refusal);
  add("/", HttpGuard::kOpen, nullptr, refusal);
  add("/**", HttpGuard::kGuarded, nullptr, refusal);
  for (const RewordedPath& each : reworded) {
    add(each.path, HttpGuard::kGuarded, each.reword, refusal);
    add(each.path + "/**", HttpGuard::kGuarded, each.reword, refusal);
  }
}

}  // namespace ferry
