#include "runtime/cluster/loss_notice.h"

#include <utility>

namespace ferry {

bool LossNotice::report(const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  if (!reason_.empty()) return false;
  reason_ = reason;
  reported_.notify_all();
  if (listener_) listener_(reason_);
  return true;
}

void LossNotice::listen(Listener listener) {
  const std::scoped_lock lock(mutex_);
  listener_ = std::move(listener);
  if (listener_ && !reason_.empty()) listener_(reason_);
}

bool LossNotice::wait_for(std::chrono::milliseconds limit) const {
  std::unique_lock lock(mutex_);
  return reported_.wait_for(lock, limit, [this] { return !reason_.empty(); });
}

}  // namespace ferry
