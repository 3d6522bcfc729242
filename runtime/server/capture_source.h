#pragma once

#include <functional>

#include "profiler/capture.h"
#include "runtime/trace_session.h"

namespace ferry {

class Coordinator;

/// What takes captures: the engine of a running server, as its TraceSession does between two steps. Any thread may call any method.
class CaptureSource {
 public:
  virtual ~CaptureSource() = default;

  // As TraceSession's; also Error{kUnavailable} once the engine has failed or stops.
  virtual void start(const TracePlan& plan) = 0;
  virtual void stop() = 0;
  virtual void save_snapshot() = 0;
  /// Who gets finished captures; must be quick. When setting another one (or none) returns, the old one is not running.
  virtual void set_on_capture(std::function<void(Capture)> on_capture) = 0;
};

/// The real one. The coordinator must outlive it.
class CoordinatorCaptures : public CaptureSource {
 public:
  explicit CoordinatorCaptures(Coordinator& coordinator) : coordinator_(coordinator) {}

  void start(const TracePlan& plan) override;
  void stop() override;
  void save_snapshot() override;
  void set_on_capture(std::function<void(Capture)> on_capture) override;

 private:
  Coordinator& coordinator_;
};

}  // namespace ferry
