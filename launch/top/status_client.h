#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/base/timeout_factor.h"

namespace ferry {

struct TopOptions;

/// Whom to ask, and how.
struct StatusTarget {
  std::string server;                        // "http://127.0.0.1:8000", as messages name it
  std::string status_url;                    // of its /status.json
  std::string key;                           // empty: none
  std::string ca_file, cert_file, key_file;  // PEM; empty: none
};

/// Throws Error{kInvalidArgument} that names what is no address and what is allowed, and what reading the key's file throws.
StatusTarget make_target(const TopOptions& options);

/// What came of one question.
struct StatusAnswer {
  std::string body;         // of an answer with status 200
  std::string complaint;    // one line, if there is none
  bool is_refused = false;  // by the server, which would say the same again: a key that is wrong, a page that is not there
};

/// How long a question may take.
struct StatusTimes {
  std::chrono::milliseconds answer = scaled_timeout(std::chrono::seconds(5));   // in all
  std::chrono::milliseconds connect = scaled_timeout(std::chrono::seconds(3));  // of which, until a connection stands
};

/// Asks a server for its status over HTTP, one question at a time, without a thread. One thread uses it.
class StatusClient {
 public:
  static constexpr int64_t kMaxBytes = int64_t{1} << 20;

  explicit StatusClient(StatusTarget target, const StatusTimes& times = {});
  ~StatusClient();
  StatusClient(const StatusClient&) = delete;
  StatusClient& operator=(const StatusClient&) = delete;

  const StatusTarget& target() const;
  void ask();
  bool is_asking() const;
  /// Works on the question until it is answered, one of `descriptors` can be read or `timeout` has passed.
  std::optional<StatusAnswer> wait(std::span<const int> descriptors, std::chrono::milliseconds timeout);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
