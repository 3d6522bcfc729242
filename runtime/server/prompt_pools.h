#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/server/task_pool.h"

namespace ferry {

struct EngineLoad;
struct ServerLimits;

/// The main work of a step of making a prompt.
enum class PromptWork {
  kText,     // reads a body, tokenizes
  kGrammar,  // compiles a grammar
  kMedia,    // decodes pictures and videos that the request holds
  kFetch,    // fetches pictures from other hosts, and decodes them
};

/// A step of making a prompt.
struct PromptStep {
  PromptWork work = PromptWork::kText;
  std::vector<std::string> hosts = {};  // that kFetch asks, each once
  std::string key = {};                 // the client's, such as "key 3"; clients without one are one, with the empty key
};

/// Number of threads for one kind of work, and of steps that may run at once for one key, one host, and one key at one host.
struct PromptThreads {
  std::size_t num_threads;
  std::size_t of_key;
  std::size_t of_host = 0;         // kFetch alone
  std::size_t of_key_at_host = 0;  // kFetch alone
};

/// The bounds of a kind of work. README.md of this folder lists them for users.
PromptThreads prompt_threads(PromptWork work);

/// The threads of a port that read its calls and make their prompts. Each kind of work has threads of its own, so nobody waits
/// for a kind that takes longer. Within a kind, FairQueue gives keys and hosts their shares. Any thread may call any method.
class PromptPools {
 public:
  /// As many prompts may wait for each kind of work, of one key or host, as requests may run and wait (--max-seqs and
  /// --max-waiting). A server that fetches no pictures has no threads for that.
  PromptPools(const EngineLoad& load, const ServerLimits& limits);
  /// Runs what is queued. A pool that has ended refuses what tasks of the others hand to it.
  ~PromptPools();
  PromptPools(const PromptPools&) = delete;
  PromptPools& operator=(const PromptPools&) = delete;

  /// Has `task` run soon. Returns false if as many as may wait do already. Does not block.
  [[nodiscard]] bool try_run(const PromptStep& step, std::function<void()> task);
  /// Returns the error of a call that try_run did not take: kResourceExhausted.
  Error refusal() const;

 private:
  TaskPool& pool(PromptWork work);

  const std::size_t max_waiting_;
  TaskPool text_, grammar_, media_, fetch_;
};

}  // namespace ferry
