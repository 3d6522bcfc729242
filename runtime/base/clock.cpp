#include "runtime/base/clock.h"

namespace ferry {
namespace {

class RealClock final : public Clock {
 public:
  Time now() const override { return std::chrono::steady_clock::now(); }

  void wait_until(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, Time until) override {
    changed.wait_until(lock, until);
  }
};

}  // namespace

Clock& real_clock() {
  static RealClock clock;
  return clock;
}

}  // namespace ferry
