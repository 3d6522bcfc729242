#pragma once

#include <functional>

#include "runtime/base/error.h"
#include "runtime/server/task_pool.h"

namespace ferry {

struct EngineLoad;

/// A prompt that is made may have to wait for one of these.
enum class PromptWork { kText, kMedia, kGrammar };

/// The threads of a port that read its calls and make their prompts. Text, pictures and grammars have threads of their own, so
/// that what takes long keeps nobody else waiting. Any thread may call any method.
class PromptPools {
 public:
  /// As many prompts may wait for each kind of work as requests may run and wait (--max-seqs and --max-waiting).
  explicit PromptPools(const EngineLoad& load);

  /// Has `task`, which must not throw, run soon. False if as many as may wait do already. Does not block.
  [[nodiscard]] bool try_run(PromptWork work, std::function<void()> task);
  /// Returns the error of a call that try_run did not take: kResourceExhausted.
  Error refusal() const;

 private:
  const std::size_t max_waiting_;
  // Tasks of the last one hand calls to the others, so it ends first.
  TaskPool media_, grammar_, text_;
};

}  // namespace ferry
