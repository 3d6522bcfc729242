#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "runtime/grammar/grammar_engine.h"
#include "runtime/server/answer_bytes.h"
#include "runtime/server/api/settings.h"
#include "runtime/server/engine_client.h"
#include "runtime/server/preparations.h"
#include "runtime/server/prompt_pools.h"
#include "runtime/server/task_pool.h"

namespace ferry::api {

/// Counts calls from their arrival to their answer. Any thread may call any method.
class CallCount {
 public:
  void enter();
  void leave();
  int64_t count() const;
  /// Until there is none, or the time is over.
  void wait_until_none(std::chrono::milliseconds timeout) const;

 private:
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable left_;
  int64_t count_ = 0;
};

/// What all calls of the API share.
struct ApiContext {
  EngineClient& engine;
  const std::shared_ptr<AnswerMemory> answers;  // calls that outlive this give back what they hold, too
  const ApiSettings settings;
  GrammarEngine& grammars;
  Preparations preparations{};
  CallCount calls{};
  // The last one ends first: making prompts hands calls to the finishers.
  TaskPool finishers;  // whole answers are written here, and requests ended that a sink may not end
  PromptPools pools;   // bodies are read here, and prompts made
};

}  // namespace ferry::api
