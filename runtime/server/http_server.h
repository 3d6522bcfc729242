#pragma once

#include <memory>
#include <string>

namespace ferry {

class ProfileControl;

/// What people do with curl:
///
///   POST /start_profile   body empty, or a JSON object with output_dir, start_step, num_steps, level, max_bytes
///   POST /stop_profile    body empty, or {"wait": true}
///   GET  /health          200
///
/// Answers are JSON objects: {"output_dir": …} or {"error": …} with 400 (a bad field), 409 (not now), 503.
///
/// Any thread may call any method. `control` must outlive the server.
class HttpServer {
 public:
  /// Listens when it returns. Throws Error{kInvalidArgument} for an address that is not HOST:PORT and
  /// Error{kFailedPrecondition} if it cannot be listened on.
  HttpServer(const std::string& address, ProfileControl& control);
  /// Stops; open calls are answered first.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// HOST:PORT with the port that is really used.
  const std::string& address() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
