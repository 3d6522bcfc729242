#include "runtime/server/api/api_context.h"

namespace ferry::api {

void CallCount::enter() {
  const std::scoped_lock lock(mutex_);
  ++count_;
}

void CallCount::leave() {
  {
    const std::scoped_lock lock(mutex_);
    --count_;
  }
  left_.notify_all();
}

int64_t CallCount::count() const {
  const std::scoped_lock lock(mutex_);
  return count_;
}

void CallCount::wait_until_none(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  left_.wait_for(lock, timeout, [this] { return count_ == 0; });
}

}  // namespace ferry::api
