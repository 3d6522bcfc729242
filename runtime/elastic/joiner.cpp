#include "runtime/elastic/joiner.h"

#include <random>
#include <utility>

namespace ferry {

Joiner::Joiner(std::string address, std::string key, std::vector<std::byte> introduction)
    : address_(std::move(address)), key_(std::move(key)), introduction_(std::move(introduction)) {
  thread_ = std::thread([this] { run(); });
}

Joiner::~Joiner() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  stop_.request_stop();
  changed_.notify_all();
  thread_.join();
}

void Joiner::call(std::chrono::milliseconds time) {
  const std::scoped_lock lock(mutex_);
  until_ = std::chrono::steady_clock::now() + time;
  changed_.notify_all();
}

bool Joiner::is_calling() const {
  const std::scoped_lock lock(mutex_);
  return until_ || joined_ || error_;
}

void Joiner::wait(std::chrono::milliseconds time) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return joined_ || error_; });
}

std::optional<Joined> Joiner::take() {
  const std::scoped_lock lock(mutex_);
  if (const std::optional<Error> error = std::exchange(error_, std::nullopt)) throw Error(*error);
  return std::exchange(joined_, std::nullopt);
}

void Joiner::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_over_ || until_; });
    if (is_over_) return;
    const auto until = *until_;
    lock.unlock();
    std::optional<Joined> joined;
    std::optional<Error> error;
    try {
      joined = join(address_, key_, std::random_device{}(), introduction_, until, stop_.get_token());
    } catch (const Error& what) {
      error = what;
    }
    lock.lock();
    until_.reset();
    joined_ = std::move(joined);
    error_ = std::move(error);
    changed_.notify_all();
  }
}

}  // namespace ferry
