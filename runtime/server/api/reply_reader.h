#pragma once

#include <vector>

#include "runtime/server/api/answer.h"
#include "runtime/text/reply/reply_parser.h"

namespace ferry::api {

/// Takes one choice's reply apart as events bring it, and counts its tokens. The tokenizer and the options' tools must outlive
/// it.
class ReplyReader {
 public:
  ReplyReader(const Tokenizer& tokenizer, const ReplyParser::Options& options) : parser_(tokenizer, options) {}

  /// What `event` tells; with the last one also what the parser held back.
  std::vector<ReplyDelta> read(const GenerateEvent& event);

  /// Calls of tools so far.
  int32_t num_calls() const { return parser_.num_calls(); }
  /// Of a choice whose prompt has `num_prompt` tokens, so far.
  UsageCount usage(int64_t num_prompt) const;

 private:
  ReplyParser parser_;
  int64_t num_tokens_ = 0;
  int64_t cached_tokens_ = 0;
};

}  // namespace ferry::api
