#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace ferry::test {

/// What a request got: tokens, and the bytes of the logits that chose each.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<std::vector<std::byte>> logits;
  int64_t num_cached = 0;  // of its prompt's tokens

  bool operator==(const Answer& other) const { return tokens == other.tokens && logits == other.logits; }
};

/// Steps an engine with a scheduler of its own, whose prefix cache is empty at first.
class Server {
 public:
  /// The engine outlives it; with `limits` no larger than its own.
  Server(Engine& engine, const SchedulerOptions& limits);

  /// Of these requests together, by id.
  std::map<std::string, Answer> answer(const std::vector<Request>& requests);
  Answer answer(const Request& request) { return answer(std::vector{request}).at(request.id); }
  SchedulerLoad load() const { return scheduler_.load(); }
  Scheduler& scheduler() { return scheduler_; }
  /// Snapshots that one step saved of one sequence, the most.
  int64_t max_saved() const { return max_saved_; }

  bool is_timed = false;                    // no logits are kept, and nothing is checked
  std::function<void()> before_step;        // called before each
  std::function<void()> after_first_token;  // of any request: called behind the step that gave it

 private:
  void step(std::map<std::string, Answer>& answers);
  void keep_logits(const StepPlan& plan, const StepChoices& choices, std::map<std::string, Answer>& answers);

  Engine& engine_;
  HostLogits& logits_;  // the engine's, of its last step
  Scheduler scheduler_;
  int64_t max_saved_ = 0;
};

/// The engine's limits without a prefix cache.
SchedulerOptions without_cache(SchedulerOptions limits);

}  // namespace ferry::test
