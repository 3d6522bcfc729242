#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/thread_pool.h"
#include "runtime/progress.h"

namespace ferry {

/// Whether the engine goes on, judged from looks at it. Pure: time is an argument.
///
/// Computing is not waiting. What computes goes on as long as anything moves: a scope of Progress begins or ends, a task of the
/// pool is taken or done, a device goes on (whose every submission has a deadline of its own), or the engine's thread gets time
/// on a core; a step may so take minutes. What waits moves nothing, so it has an allowance:
///
///   idle, computing, posting   kSlack in which nothing moves
///   awaiting a message         kSlack and kUsualFactor times what waits for such a message of as many bytes (that is, rows)
///                              usually take, at most the peer timeout; the peer timeout for a size that was never awaited
///
/// Beyond it the engine is overdue. When nothing has moved for the peer timeout and kGrace, it is dead: a wait would have ended
/// at its own deadline.
class ProgressRule {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kSlack{1500};
  static constexpr int kUsualFactor = 4;
  static constexpr std::chrono::milliseconds kGrace{2000};
  /// Time between two looks counts up to this: who does not look for longer was stopped itself, perhaps with the engine.
  static constexpr std::chrono::milliseconds kLongestLook{500};

  explicit ProgressRule(std::chrono::nanoseconds peer_timeout) : peer_timeout_(peer_timeout) {}

  enum class Verdict { kGoesOn, kOverdue, kDead };
  /// `work`: ThreadPool::progress(), and the device's.
  Verdict look(Time now, const Progress::Sight& sight, uint64_t work);
  /// For how long nothing has moved.
  std::chrono::nanoseconds still() const { return still_; }

 private:
  bool has_moved(const Progress::Sight& sight, uint64_t work) const;
  std::chrono::nanoseconds allowance(const Progress::Sight& sight) const;

  const std::chrono::nanoseconds peer_timeout_;
  std::optional<Time> last_look_;
  Progress::Sight last_sight_;
  uint64_t last_work_ = 0;
  std::chrono::nanoseconds still_{0};
};

/// Looks at an engine from a thread of its own, which nothing that the engine waits for can block, MPI included.
class EngineWatch {
 public:
  static constexpr std::chrono::milliseconds kPeriod{100};

  /// `progress`, `pool` and `clock` outlive this. `device_progress` grows while a device goes on; none where the pool computes.
  /// `on_dead` is called with one line at every look at a dead engine, and should end the process.
  EngineWatch(const Progress& progress, const ThreadPool& pool, std::function<uint64_t()> device_progress,
              std::chrono::milliseconds peer_timeout, std::function<void(const std::string& line)> on_dead,
              Clock& clock = real_clock());
  ~EngineWatch();
  EngineWatch(const EngineWatch&) = delete;
  EngineWatch& operator=(const EngineWatch&) = delete;

  /// Why the engine is overdue; nothing while it goes on. Any thread; does not wait.
  std::optional<std::string> complaint() const;
  /// Called on the watch's thread whenever the engine becomes overdue, with the reason, or goes on again, with none. When
  /// setting another one (or none) returns, the old one is not running.
  using OnChange = std::function<void(const std::optional<std::string>& complaint)>;
  void set_on_change(OnChange on_change);

 private:
  void run();
  void look();

  const Progress& progress_;
  const ThreadPool& pool_;
  const std::function<uint64_t()> device_progress_;
  const std::function<void(const std::string&)> on_dead_;
  const double peer_timeout_s_;
  Clock& clock_;
  ProgressRule rule_;  // of the thread alone

  mutable std::mutex mutex_;  // guards all below but thread_
  std::condition_variable stopped_;
  bool is_stopping_ = false;
  std::optional<std::string> complaint_;
  std::mutex on_change_mutex_;  // guards on_change_ alone, also while it runs
  OnChange on_change_;
  std::thread thread_;
};

}  // namespace ferry
