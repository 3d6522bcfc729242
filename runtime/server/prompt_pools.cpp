#include "runtime/server/prompt_pools.h"

#include <utility>

#include "runtime/coordinator.h"
#include "runtime/options/server_limits.h"

namespace ferry {
namespace {

/// The key comes first, so keys have equal shares. Then each host that the step asks has its own, and the key has one at it.
std::vector<TaskShare> shares_of(const PromptStep& step) {
  const PromptThreads threads = prompt_threads(step.work);
  std::vector<TaskShare> shares{{.name = step.key, .max_running = threads.of_key}};
  for (const std::string& host : step.hosts) {
    shares.push_back({.name = step.key + " at " + host, .max_running = threads.of_key_at_host});
    shares.push_back({.name = "host " + host, .max_running = threads.of_host});
  }
  return shares;
}

}  // namespace

PromptThreads prompt_threads(PromptWork work) {
  switch (work) {
    case PromptWork::kText: break;
    case PromptWork::kGrammar: return {.num_threads = 4, .of_key = 2};
    case PromptWork::kMedia: return {.num_threads = 3, .of_key = 2};
    case PromptWork::kFetch: return {.num_threads = 16, .of_key = 8, .of_host = 4, .of_key_at_host = 3};
  }
  return {.num_threads = 2, .of_key = 2};
}

PromptPools::PromptPools(const EngineLoad& load, const ServerLimits& limits)
    : max_waiting_(static_cast<std::size_t>(load.max_running_requests) + static_cast<std::size_t>(load.max_waiting_requests)),
      text_(prompt_threads(PromptWork::kText).num_threads, max_waiting_),
      grammar_(prompt_threads(PromptWork::kGrammar).num_threads, max_waiting_),
      media_(prompt_threads(PromptWork::kMedia).num_threads, max_waiting_),
      fetch_(limits.picture_hosts.empty() ? 0 : prompt_threads(PromptWork::kFetch).num_threads, max_waiting_) {}

PromptPools::~PromptPools() {
  for (TaskPool* const ending : {&text_, &grammar_, &fetch_, &media_}) ending->drain();
}

TaskPool& PromptPools::pool(PromptWork work) {
  switch (work) {
    case PromptWork::kText: break;
    case PromptWork::kGrammar: return grammar_;
    case PromptWork::kMedia: return media_;
    case PromptWork::kFetch: return fetch_;
  }
  return text_;
}

bool PromptPools::try_run(const PromptStep& step, std::function<void()> task) {
  return pool(step.work).try_run(shares_of(step), std::move(task));
}

Error PromptPools::refusal() const {
  return {ErrorCode::kResourceExhausted, "too many prompts wait to be made; allowed: " + std::to_string(max_waiting_) +
                                             " of one key, --max-seqs and --max-waiting together"};
}

}  // namespace ferry
