#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace gloo::transport {
class UnboundBuffer;
}

namespace ferry {

/// Waits for a receive's first part in place of a thread that is busy, so that what follows can be asked for as soon as it is
/// there. One receive at a time; its thread starts with the first one.
class FrameTaker {
 public:
  FrameTaker() = default;
  ~FrameTaker();
  FrameTaker(const FrameTaker&) = delete;
  FrameTaker& operator=(const FrameTaker&) = delete;

  /// Begins to wait for `frame`, which lives until it is released. `on_arrival` runs on the taker's thread and must not throw.
  /// Does nothing while another frame is awaited.
  void take(gloo::transport::UnboundBuffer& frame, std::function<void()> on_arrival);

  /// Ends the wait for `frame`, if there is one: from then on on_arrival has run or never will. gloo's error of a lost peer
  /// ends a wait as well; who waits for the frame then gets it.
  void release(gloo::transport::UnboundBuffer& frame);

 private:
  void run();

  std::mutex mutex_;  // guards all below but thread_
  std::condition_variable changed_;
  gloo::transport::UnboundBuffer* frame_ = nullptr;  // that is to be taken
  std::function<void()> on_arrival_;
  bool is_waiting_ = false;  // the thread is in gloo's wait for frame_
  bool is_leaving_ = false;
  std::thread thread_;
};

}  // namespace ferry
