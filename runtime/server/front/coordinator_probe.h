#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/server/front/coordinator_pool.h"
#include "runtime/server/front/front_mark.h"

namespace ferry {

class HttpClient;
class HealthLook;
class HttpExchange;

struct ProbeTimes {
  std::chrono::milliseconds period{1000};       // between looks; sooner where there is reason to (CoordinatorPool)
  std::chrono::milliseconds deadline{1000};     // for an answer
  std::chrono::milliseconds lost_after{10000};  // without one, until a coordinator's open calls are given up
};

/// Looks at all coordinators again and again, GET /health, on a thread of its own: 200 is kServing, any other answer kRefusing,
/// none within the deadline kDown. A front that is its own coordinator knows itself by `mark`, and refuses.
class CoordinatorProbe {
 public:
  /// Looks once before it returns. `on_look` is called after each look, on whatever thread looked: must be quick. All
  /// others must outlive this. `times` are those of `clock`.
  CoordinatorProbe(CoordinatorPool& pool, HttpClient& client, const FrontMark& mark, ProbeTimes times,
                   std::function<void()> on_look, Clock& clock = real_clock());
  ~CoordinatorProbe();
  CoordinatorProbe(const CoordinatorProbe&) = delete;
  CoordinatorProbe& operator=(const CoordinatorProbe&) = delete;

 private:
  using Looks = std::vector<std::pair<std::shared_ptr<HttpExchange>, std::shared_ptr<HealthLook>>>;
  void run();
  void look();
  Looks begin_looks();
  void hurry();

  CoordinatorPool& pool_;
  HttpClient& client_;
  const FrontMark& mark_;
  const ProbeTimes times_;
  const std::function<void()> on_look_;
  Clock& clock_;
  std::vector<Clock::Time> last_answers_;  // by coordinator
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_hurried_ = false, is_leaving_ = false;  // guarded by the mutex
  Looks looks_;                                   // that are under way; guarded by the mutex
  std::thread thread_;
};

}  // namespace ferry
