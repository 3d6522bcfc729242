#include "comm/gloo/frame_taker.h"

#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <exception>
#include <utility>

namespace ferry {
namespace {

constexpr std::chrono::hours kNoFrameDeadline{24 * 365};  // a deadline is the business of who waits for the whole message

bool await(gloo::transport::UnboundBuffer& frame) {
  try {
    return frame.waitRecv(nullptr, kNoFrameDeadline);
  } catch (const std::exception&) {
    return false;  // gloo throws it again
  }
}

}  // namespace

FrameTaker::~FrameTaker() {
  {
    const std::scoped_lock lock(mutex_);
    is_leaving_ = true;
    if (is_waiting_) frame_->abortWaitRecv();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FrameTaker::take(gloo::transport::UnboundBuffer& frame, std::function<void()> on_arrival) {
  {
    const std::scoped_lock lock(mutex_);
    if (frame_ != nullptr) return;
    frame_ = &frame;
    on_arrival_ = std::move(on_arrival);
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void FrameTaker::release(gloo::transport::UnboundBuffer& frame) {
  std::unique_lock lock(mutex_);
  if (frame_ != &frame) return;
  if (!is_waiting_) {
    frame_ = nullptr;
    return;
  }
  frame.abortWaitRecv();
  changed_.wait(lock, [&] { return frame_ != &frame; });
}

void FrameTaker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return frame_ != nullptr || is_leaving_; });
    if (is_leaving_) return;
    is_waiting_ = true;
    lock.unlock();
    const bool has_arrived = await(*frame_);
    if (has_arrived) on_arrival_();
    lock.lock();
    is_waiting_ = false;
    frame_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace ferry
