#pragma once

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/schedule/token_grammar.h"

namespace ferry::test {

/// Lets the completion go through sets of ids, one a token, over and over; an empty set: any id. Ends after `length` tokens.
/// Remembers what it was told, and that it was told so by the rules.
class CycleGrammar final : public TokenGrammar {
 public:
  CycleGrammar(std::vector<std::vector<TokenId>> sets, std::size_t length) : sets_(std::move(sets)), length_(length) {}

  bool fill_mask(std::span<uint32_t> bits) override {
    if (throws) throw std::runtime_error("no mask");
    if (is_terminated()) throw std::logic_error("a mask behind the end");
    ++num_masks;
    if (set().empty()) return false;
    for (uint32_t& word : bits) word = 0;
    for (const TokenId id : set()) bits[static_cast<std::size_t>(id) / 32] |= uint32_t{1} << id % 32;
    return true;
  }
  bool accept(TokenId id) override {
    if (is_terminated()) return false;
    if (!set().empty() && std::find(set().begin(), set().end(), id) == set().end()) return false;
    accepted.push_back(id);
    return true;
  }
  void rollback(int64_t num_tokens) override { accepted.resize(accepted.size() - static_cast<std::size_t>(num_tokens)); }
  bool is_terminated() const override { return accepted.size() >= length_; }

  std::vector<TokenId> accepted;
  int num_masks = 0;
  bool throws = false;

 private:
  const std::vector<TokenId>& set() const { return sets_[accepted.size() % sets_.size()]; }

  const std::vector<std::vector<TokenId>> sets_;
  const std::size_t length_;
};

}  // namespace ferry::test
