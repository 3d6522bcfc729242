#include "runtime/server/api/reply_blocks.h"

#include <utility>

#include "runtime/base/random_id.h"

namespace ferry::api {

void ReplyBlocks::add(const ReplyDelta& delta, std::vector<BlockStep>& steps) {
  using Kind = ReplyBlock::Kind;
  switch (delta.part) {
    case ReplyPart::kReasoning:
    case ReplyPart::kContent: {
      if (delta.text.empty()) return;
      const Kind kind = delta.part == ReplyPart::kReasoning ? Kind::kThought : Kind::kText;
      if (!is_open(kind)) open(kind, "", steps);
      return grow(delta.text, steps);
    }
    case ReplyPart::kCallBegin: return open(Kind::kCall, delta.text, steps);
    case ReplyPart::kCallArguments:
      if (!delta.text.empty()) grow(delta.text, steps);
      return;
    case ReplyPart::kCallEnd: return close(steps);
  }
}

void ReplyBlocks::close(std::vector<BlockStep>& steps) {
  if (std::exchange(is_open_, false))
    steps.push_back({.kind = BlockStep::Kind::kClose, .block = blocks_.size() - 1, .text = {}});
}

void ReplyBlocks::open(ReplyBlock::Kind kind, const std::string& name, std::vector<BlockStep>& steps) {
  close(steps);
  blocks_.push_back({.kind = kind, .id = random_id(), .name = name, .text = {}});
  is_open_ = true;
  steps.push_back({.kind = BlockStep::Kind::kOpen, .block = blocks_.size() - 1, .text = {}});
}

void ReplyBlocks::grow(const std::string& text, std::vector<BlockStep>& steps) {
  blocks_.back().text += text;
  steps.push_back({.kind = BlockStep::Kind::kGrow, .block = blocks_.size() - 1, .text = text});
}

}  // namespace ferry::api
