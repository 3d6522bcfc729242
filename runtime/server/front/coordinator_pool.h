#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/options/front_options.h"
#include "runtime/server/front/call_traits.h"
#include "runtime/server/front/coordinator_choice.h"
#include "runtime/server/front/prompt_pieces.h"
#include "runtime/server/front/recent_map.h"

namespace ferry {

enum class CoordinatorState {
  kServing,
  kRefusing,  // answers, but takes no calls: it drains, is overdue or has failed
  kDown,      // does not answer
};
const char* coordinator_state_name(CoordinatorState state);  // "serving"

enum class FrontPort { kHttp, kGrpc };
inline constexpr int kNumFrontPorts = 2;
const char* front_port_name(FrontPort port);  // "http"

/// How a front's coordinators do, for health checks and metrics.
struct PoolReport {
  struct Coordinator {
    CoordinatorAddress address;
    CoordinatorState state = CoordinatorState::kDown;
    std::string reason;                               // of a state other than kServing
    int64_t num_open = 0;                             // calls
    std::array<int64_t, kNumFrontPorts> num_calls{};  // ever given to it, by port
    int64_t num_broken = 0;                           // answers that ended in their middle
    int64_t num_failures = 0;                         // times that it went down
    int64_t remembered_pieces = 0;                    // of prompts
  };
  std::vector<Coordinator> coordinators;
  std::array<int64_t, kNumChoiceReasons> choices{};  // of calls for tokens, by ChoiceReason
  int64_t num_retries = 0;                           // calls that were given to another coordinator
  int64_t num_unserved = 0;                          // calls for which there was none
  int64_t num_sessions = 0;                          // remembered

  int64_t num_open() const;
  int num_serving() const;
};

/// A front's coordinators: how each does, what each was asked, and who gets a call. Any thread may call any method.
class CoordinatorPool {
 public:
  static constexpr std::size_t kMaxSessions = std::size_t{1} << 16;  // and as many users
  static constexpr std::size_t kMaxPieces = std::size_t{1} << 16;    // of a coordinator's prompts: 16 MiB of text

  /// All of them are down until somebody has seen them (set_state).
  explicit CoordinatorPool(std::vector<CoordinatorAddress> coordinators);
  CoordinatorPool(const CoordinatorPool&) = delete;
  CoordinatorPool& operator=(const CoordinatorPool&) = delete;

  std::size_t size() const { return addresses_.size(); }
  const CoordinatorAddress& address(std::size_t coordinator) const { return addresses_[coordinator]; }

  /// A call that a coordinator answers; it is open until this goes.
  class OpenCall {
   public:
    OpenCall(CoordinatorPool& pool, std::size_t coordinator, uint64_t number)
        : pool_(pool), coordinator_(coordinator), number_(number) {}
    ~OpenCall() { pool_.close(coordinator_, number_); }
    OpenCall(const OpenCall&) = delete;
    OpenCall& operator=(const OpenCall&) = delete;

    std::size_t coordinator() const { return coordinator_; }

   private:
    CoordinatorPool& pool_;
    const std::size_t coordinator_;
    const uint64_t number_;
  };

  struct Wanted {
    const CallTraits& traits;
    FrontPort port = FrontPort::kHttp;
    bool has_prompt = false;                  // else nothing is remembered of it
    const std::vector<std::size_t>& tried{};  // coordinators that have failed this call
    std::function<void()> on_lost;            // the coordinator is given up: nothing will come of it any more
  };
  /// Chooses (choose_coordinator) and remembers. Null if there is none. `on_lost` is called at most once, by whatever thread
  /// gives up, and maybe after the call has been closed.
  std::unique_ptr<OpenCall> open(Wanted wanted);
  /// Whether there is one to give such a call to.
  bool has_another(FrontPort port, const std::vector<std::size_t>& tried) const;
  /// Those that have `port` and are not down: one that drains still has calls.
  std::vector<std::size_t> answering(FrontPort port) const;

  /// What a look at a coordinator showed. What was remembered of one that is down is forgotten.
  void set_state(std::size_t coordinator, CoordinatorState state, const std::string& reason);
  /// Nobody is there, or whoever was has closed without a word: as kDown, and on_suspicion is told.
  void mark_down(std::size_t coordinator, const std::string& reason);
  /// An answer of it has ended in its middle.
  void count_broken(std::size_t coordinator);
  /// Its open calls come to nothing.
  void give_up_calls(std::size_t coordinator);
  /// Told when there is reason to look at coordinators at once; must be quick. When this returns, the former one is not called
  /// any more.
  void set_on_suspicion(std::function<void()> on_suspicion);

  PoolReport report() const;

 private:
  struct Coordinator {
    CoordinatorState state = CoordinatorState::kDown;
    std::string reason = "it was not asked yet";
    std::map<uint64_t, std::function<void()>> open;  // by number: on_lost
    std::array<int64_t, kNumFrontPorts> num_calls{};
    int64_t num_broken = 0, num_failures = 0;
    PrefixMemory prompts{kMaxPieces};
  };

  bool has_port(std::size_t coordinator, FrontPort port) const {
    return port == FrontPort::kHttp || !addresses_[coordinator].grpc.empty();
  }
  // With the lock held:
  bool may_get(std::size_t coordinator, FrontPort port, const std::vector<std::size_t>& tried) const;
  std::vector<CoordinatorSight> sights(const Wanted& wanted) const;
  FormerPlaces former_places(const CallTraits& traits) const;
  void remember(const CallTraits& traits, std::size_t coordinator);

  void close(std::size_t coordinator, uint64_t number);
  void suspect();

  const std::vector<CoordinatorAddress> addresses_;
  std::mutex suspicion_mutex_;
  std::function<void()> on_suspicion_;  // guarded by suspicion_mutex_
  mutable std::mutex mutex_;
  // Guarded by the mutex:
  std::vector<Coordinator> coordinators_;
  RecentMap<std::size_t> sessions_{kMaxSessions}, users_{kMaxSessions};
  std::array<int64_t, kNumChoiceReasons> choices_{};
  int64_t num_retries_ = 0, num_unserved_ = 0;
  uint64_t last_number_ = 0;
};

}  // namespace ferry
