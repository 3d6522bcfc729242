#include "runtime/grammar/behind_reasoning.h"

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

bool contains(const std::vector<TokenId>& ids, TokenId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

void set_bit(std::span<uint32_t> bits, TokenId id, bool value) {
  const uint32_t bit = uint32_t{1} << (id % 32);
  uint32_t& word = bits[static_cast<std::size_t>(id) / 32];
  word = value ? word | bit : word & ~bit;
}

}  // namespace

BehindReasoning::BehindReasoning(std::unique_ptr<TokenGrammar> grammar, Tokens tokens)
    : grammar_(std::move(grammar)), tokens_(std::move(tokens)) {}

bool BehindReasoning::fill_mask(std::span<uint32_t> bits) {
  if (phase() == Phase::kGrammar) return grammar_->fill_mask(bits);
  if (phase() == Phase::kLineBreaks) {
    if (!grammar_->fill_mask(bits)) return false;
    for (const TokenId id : tokens_.line_breaks) set_bit(bits, id, true);
    return true;
  }
  const auto num_whole = static_cast<std::size_t>(tokens_.vocab_size / 32);
  std::fill(bits.begin(), bits.begin() + static_cast<std::ptrdiff_t>(num_whole), ~uint32_t{0});
  std::fill(bits.begin() + static_cast<std::ptrdiff_t>(num_whole), bits.end(), uint32_t{0});
  if (tokens_.vocab_size % 32 != 0) bits[num_whole] = (uint32_t{1} << (tokens_.vocab_size % 32)) - 1;
  for (const TokenId id : tokens_.stop_ids) set_bit(bits, id, false);
  return true;
}

bool BehindReasoning::accept(TokenId id) {
  if (phase() == Phase::kReasoning && id != tokens_.call_begin) {
    if (contains(tokens_.stop_ids, id)) return false;
    phases_.push_back(id == tokens_.think_end ? Phase::kLineBreaks : Phase::kReasoning);
    return true;
  }
  if (grammar_->accept(id)) {
    phases_.push_back(Phase::kGrammar);
    return true;
  }
  const bool is_line_break = phase() == Phase::kLineBreaks && contains(tokens_.line_breaks, id);
  if (is_line_break) phases_.push_back(Phase::kLineBreaks);
  return is_line_break;
}

void BehindReasoning::rollback(int64_t num_tokens) {
  const auto first = phases_.end() - static_cast<std::ptrdiff_t>(num_tokens);
  const int64_t num_of_grammar = std::count(first, phases_.end(), Phase::kGrammar);
  if (num_of_grammar > 0) grammar_->rollback(num_of_grammar);
  phases_.erase(first, phases_.end());
}

}  // namespace ferry
