#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/server/live/live_status.h"

namespace ferry {

class HttpRouter;

/// The status as JSON, made when somebody asks. However many watch, it is made once in kFreshness: making it copies the
/// profiler's rings. Any thread.
class LiveFeed {
 public:
  using SteadyClock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kFreshness{100};

  explicit LiveFeed(std::function<LiveStatus()> make) : make_(std::move(make)) {}
  std::shared_ptr<const std::string> json(SteadyClock::time_point now);

 private:
  const std::function<LiveStatus()> make_;
  std::mutex mutex_;  // guards all below, also while it is made
  std::shared_ptr<const std::string> json_;
  SteadyClock::time_point made_at_;
};

/// GET /status.json, with a key where the server has any, and GET /, the page that shows it. The page itself says nothing of
/// the job, so anybody may load it; it asks its reader for the key. `feed` must outlive the server.
void add_live_routes(HttpRouter& router, LiveFeed& feed);

}  // namespace ferry
