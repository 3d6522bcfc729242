#include "runtime/server/http_server.h"

#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/server/host_port.h"
#include "runtime/server/profile_control.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr const char* kJson = "application/json";

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return 400;
    case ErrorCode::kFailedPrecondition: return 409;
    case ErrorCode::kUnavailable: return 503;
    default: return 500;
  }
}

/// The body as an object; an empty one is {}. Throws for anything else, and for fields that are not `allowed`.
json read_body(const httplib::Request& request, const std::vector<std::string>& allowed) {
  if (request.body.empty()) return json::object();
  json body = json::parse(request.body, nullptr, false);
  if (!body.is_object()) throw_invalid("the body is not a JSON object; allowed: one, or none");
  std::string names;
  for (const std::string& name : allowed) names += (names.empty() ? "" : ", ") + name;
  for (const auto& [name, value] : body.items()) {
    if (std::find(allowed.begin(), allowed.end(), name) == allowed.end())
      throw_invalid("field '" + name + "' is unknown; allowed: " + names);
  }
  return body;
}

int64_t integer_field(const json& body, const char* name, int64_t otherwise) {
  const json value = body.value(name, json());
  if (value.is_null()) return otherwise;
  if (!value.is_number_integer()) throw_invalid(std::string(name) + " is " + value.dump() + "; allowed: an integer");
  return value.get<int64_t>();
}

std::string string_field(const json& body, const char* name) {
  const json value = body.value(name, json());
  if (value.is_null()) return "";
  if (!value.is_string()) throw_invalid(std::string(name) + " is " + value.dump() + "; allowed: a string");
  return value.get<std::string>();
}

bool flag_field(const json& body, const char* name) {
  const json value = body.value(name, json(false));
  if (!value.is_boolean()) throw_invalid(std::string(name) + " is " + value.dump() + "; allowed: true, false");
  return value.get<bool>();
}

/// Turns a function from request to answer into a handler.
httplib::Server::Handler handler(std::function<json(const httplib::Request&)> answer) {
  return [answer = std::move(answer)](const httplib::Request& request, httplib::Response& response) {
    json body;
    try {
      body = answer(request);
    } catch (const Error& error) {
      response.status = http_status(error.code());
      body = {{"error", error.what()}};
    } catch (const std::exception& error) {
      response.status = 500;
      body = {{"error", error.what()}};
    }
    response.set_content(body.dump() + "\n", kJson);
  };
}

json start_profile(ProfileControl& control, const httplib::Request& request) {
  const json body = read_body(request, {"output_dir", "start_step", "num_steps", "level", "max_bytes"});
  const TracePlan defaults;
  const TracePlan plan{.level = parse_trace_level(integer_field(body, "level", static_cast<int64_t>(defaults.level))),
                       .max_bytes = integer_field(body, "max_bytes", defaults.max_bytes),
                       .delay_steps = integer_field(body, "start_step", 0),
                       .num_steps = integer_field(body, "num_steps", 0)};
  return {{"output_dir", control.start(plan, string_field(body, "output_dir")).string()}};
}

json stop_profile(ProfileControl& control, const httplib::Request& request) {
  const json body = read_body(request, {"wait"});
  return {{"output_dir", control.stop(flag_field(body, "wait")).string()}};
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const std::string& address, ProfileControl& control) {
    const HostPort to = parse_host_port("http", address);
    const std::string host = to.host.front() == '[' ? to.host.substr(1, to.host.size() - 2) : to.host;
    add_post("/start_profile", [&control](const auto& request) { return start_profile(control, request); });
    add_post("/stop_profile", [&control](const auto& request) { return stop_profile(control, request); });
    server_.set_pre_routing_handler([this](const auto& request, auto& response) { return answer_bodiless(request, response); });
    server_.Get("/health", handler([](const auto&) { return json::object(); }));
    // Not httplib's default, SO_REUSEPORT: an address in use must be an error.
    server_.set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    int port = to.port;
    const bool is_bound =
        port == 0 ? (port = server_.bind_to_any_port(host.c_str())) > 0 : server_.bind_to_port(host.c_str(), port);
    if (!is_bound) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "cannot serve http on " + address + ": the address is in use or does not belong to this host");
    }
    address_ = to.host + ":" + std::to_string(port);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // stop() before would be lost
  }

  ~Impl() {
    server_.stop();
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::string& address() const { return address_; }

 private:
  void add_post(const std::string& path, std::function<json(const httplib::Request&)> answer) {
    posts_[path] = handler(std::move(answer));
    server_.Post(path, posts_[path]);
  }

  /// `curl -X POST URL` says nothing of a body, and httplib would wait for one until the call times out.
  httplib::Server::HandlerResponse answer_bodiless(const httplib::Request& request, httplib::Response& response) {
    const bool has_body = request.has_header("Content-Length") || request.has_header("Transfer-Encoding");
    const auto post = posts_.find(request.path);
    if (request.method != "POST" || has_body || post == posts_.end()) return httplib::Server::HandlerResponse::Unhandled;
    post->second(request, response);
    return httplib::Server::HandlerResponse::Handled;
  }

  std::map<std::string, httplib::Server::Handler> posts_;  // by path
  httplib::Server server_;
  std::string address_;
  std::thread thread_;
};

HttpServer::HttpServer(const std::string& address, ProfileControl& control) : impl_(std::make_unique<Impl>(address, control)) {}
HttpServer::~HttpServer() = default;
const std::string& HttpServer::address() const { return impl_->address(); }

}  // namespace ferry
