#pragma once

#include <functional>
#include <string>

#include "profiler/capture.h"
#include "runtime/trace/trace_session.h"

namespace ferry {

class Coordinator;

/// What takes captures: the engine of a running server, as its TraceSession does between two steps. Any thread may call any
/// method.
class CaptureSource {
 public:
  virtual ~CaptureSource() = default;

  // As TraceSession's; also Error{kUnavailable} once the engine has failed or stops. A capture that start() or save_snapshot()
  // began without throwing ends with one of set_on_capture()'s calls.
  virtual void start(const TracePlan& plan) = 0;
  virtual void stop() = 0;
  virtual void save_snapshot() = 0;
  /// Who gets finished captures, and who hears why one was given up; must be quick. When setting others (or none) returns, the
  /// old ones are not running.
  virtual void set_on_capture(std::function<void(Capture)> on_capture,
                              std::function<void(const std::string& why)> on_give_up) = 0;
};

/// The real one. The coordinator must outlive it.
class CoordinatorCaptures : public CaptureSource {
 public:
  explicit CoordinatorCaptures(Coordinator& coordinator) : coordinator_(coordinator) {}

  void start(const TracePlan& plan) override;
  void stop() override;
  void save_snapshot() override;
  void set_on_capture(std::function<void(Capture)> on_capture, std::function<void(const std::string& why)> on_give_up) override;

 private:
  Coordinator& coordinator_;
};

}  // namespace ferry
