#include "runtime/server/api/reply_reader.h"

#include <algorithm>
#include <iterator>

namespace ferry::api {

std::vector<ReplyDelta> ReplyReader::read(const GenerateEvent& event) {
  num_tokens_ += std::ssize(event.token_ids);
  cached_tokens_ = std::max<int64_t>(cached_tokens_, event.cached_tokens);
  std::vector<ReplyDelta> deltas = parser_.push(event.token_ids, event.text);
  if (event.finish_reason != FinishReason::kNone) {
    const bool is_cut = event.finish_reason != FinishReason::kStop;
    std::ranges::move(parser_.finish(is_cut), std::back_inserter(deltas));
  }
  return deltas;
}

UsageCount ReplyReader::usage(int64_t num_prompt) const {
  return {.prompt_tokens = num_prompt,
          .completion_tokens = num_tokens_,
          .cached_tokens = cached_tokens_,
          .reasoning_tokens = parser_.reasoning_tokens()};
}

}  // namespace ferry::api
