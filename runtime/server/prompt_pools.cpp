#include "runtime/server/prompt_pools.h"

#include <string>
#include <utility>

#include "runtime/coordinator.h"

namespace ferry {
namespace {

constexpr std::size_t kThreads = 2;  // for each kind of work

}  // namespace

PromptPools::PromptPools(const EngineLoad& load)
    : max_waiting_(static_cast<std::size_t>(load.max_running_requests) + static_cast<std::size_t>(load.max_waiting_requests)),
      media_(kThreads, max_waiting_),
      grammar_(kThreads, max_waiting_),
      text_(kThreads, max_waiting_) {}

bool PromptPools::try_run(PromptWork work, std::function<void()> task) {
  switch (work) {
    case PromptWork::kText: break;
    case PromptWork::kMedia: return media_.try_run(std::move(task));
    case PromptWork::kGrammar: return grammar_.try_run(std::move(task));
  }
  return text_.try_run(std::move(task));
}

Error PromptPools::refusal() const {
  return {ErrorCode::kResourceExhausted,
          std::to_string(max_waiting_) + " prompts wait to be made; allowed: --max-seqs and --max-waiting together"};
}

}  // namespace ferry
