#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/group.h"

namespace ferry {

/// How long waits for messages usually take, by tag and size: a message's bytes say how many rows its sender had to compute.
/// Sizes are counted in powers of two.
class WaitTimes {
 public:
  WaitTimes();
  /// A wait for `op` took `took`. The longest one counts and fades by a sixteenth with each shorter one; a much longer one at
  /// most doubles it (beyond kUnit), so that a single stall is not taken for the usual.
  void learn(const OpInfo& op, std::chrono::nanoseconds took);
  /// The usual time for messages of this tag and size; nothing if none was awaited yet.
  std::optional<std::chrono::nanoseconds> usual(const OpInfo& op) const;

  static constexpr std::chrono::milliseconds kUnit{250};

 private:
  struct Entry {
    int tag = 0;
    int size = 0;  // log2 of the bytes
    std::chrono::nanoseconds longest{0};
  };
  const Entry* find(const OpInfo& op) const;

  std::vector<Entry> entries_;  // a few dozens; no more than there is room for at the start
};

/// What the engine's thread is at: the marks that EngineWatch looks at. One thread at a time leaves them, through Scope; any
/// thread may look.
///
///   const Progress::Scope scope(progress, Progress::Activity::kComputing);
class Progress {
 public:
  enum class Activity : uint8_t {
    kElsewhere,  // no engine runs: nobody expects anything
    kIdle,       // no requests; a new scope every Engine::kIdleTick
    kComputing,
    kPosting,   // hands a message to the transport, which does not wait
    kAwaiting,  // waits for a message of a peer, or for one to it to leave
  };
  /// The thread is at `activity` while this lives, then again at what it was at before. The end of a wait is learnt from.
  class Scope {
   public:
    Scope(Progress& progress, Activity activity, const OpInfo& op = {});
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Progress& progress_;
    const Activity before_;
    const OpInfo op_before_;
    const std::chrono::steady_clock::time_point begun_;  // of kAwaiting
  };

  struct Sight {
    Activity activity = Activity::kElsewhere;
    OpInfo op;                                      // of kPosting and kAwaiting
    uint64_t num_marks = 0;                         // scopes begun and ended
    std::optional<std::chrono::nanoseconds> usual;  // of kAwaiting: how long such a wait takes
    std::chrono::nanoseconds cpu_time{0};           // that the engine's thread had so far
  };
  Sight look() const;

 private:
  mutable std::mutex mutex_;  // guards all below
  Activity activity_ = Activity::kElsewhere;
  OpInfo op_;
  uint64_t num_marks_ = 0;
  WaitTimes wait_times_;
  std::optional<clockid_t> cpu_clock_;  // of the thread that left kElsewhere last
};

}  // namespace ferry
