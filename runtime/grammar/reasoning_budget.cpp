#include "runtime/grammar/reasoning_budget.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace ferry {

ReasoningBudget::ReasoningBudget(std::shared_ptr<TokenGrammar> inner, int64_t budget, const ReplyMarkers& markers)
    : inner_(std::move(inner)), budget_(budget), call_begin_(markers.id_of(ReplyTag::kCallBegin)) {
  const std::optional<TokenId> think_end = markers.id_of(ReplyTag::kThinkEnd);
  if (!think_end) throw_invalid("a thought cannot be bounded: the vocabulary has no </think>");
  think_end_ = *think_end;
}

bool ReasoningBudget::fill_mask(std::span<uint32_t> bits) {
  if (!is_spent()) return inner_ != nullptr && inner_->fill_mask(bits);
  std::fill(bits.begin(), bits.end(), uint32_t{0});
  bits[static_cast<std::size_t>(think_end_) / 32] = uint32_t{1} << (think_end_ % 32);
  return true;
}

bool ReasoningBudget::accept(TokenId id) {
  if (is_spent() && id != think_end_) return false;
  if (inner_ != nullptr && !inner_->accept(id)) return false;
  ++num_tokens_;
  if (!end_ && (id == think_end_ || id == call_begin_)) end_ = num_tokens_;
  return true;
}

void ReasoningBudget::rollback(int64_t num_tokens) {
  if (inner_ != nullptr) inner_->rollback(num_tokens);
  num_tokens_ -= num_tokens;
  if (end_ && *end_ > num_tokens_) end_.reset();
}

}  // namespace ferry
