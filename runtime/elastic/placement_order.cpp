#include "runtime/elastic/placement_order.h"

namespace ferry {

bool PlacementOrder::is_given_up() {
  const std::scoped_lock lock(mutex_);
  return is_given_up_ && is_given_up_();
}

void PlacementOrder::let_go() {
  const std::scoped_lock lock(mutex_);
  is_given_up_ = {};
}

void PlacementOrder::settle(uint32_t epoch) {
  const std::scoped_lock lock(mutex_);
  if (!error_) epoch_ = epoch;
  settled_.notify_all();
}

void PlacementOrder::fail(const Error& error) {
  const std::scoped_lock lock(mutex_);
  if (!epoch_ && !error_) error_ = error;
  settled_.notify_all();
}

std::optional<uint32_t> PlacementOrder::wait_for(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  settled_.wait_for(lock, time, [this] { return epoch_ || error_; });
  if (error_) throw Error(*error_);
  return epoch_;
}

}  // namespace ferry
