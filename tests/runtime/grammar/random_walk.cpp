#include "tests/runtime/grammar/random_walk.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace ferry::test {
namespace {

using Mask = std::vector<uint32_t>;

std::vector<TokenId> allowed_of(const Mask& mask, TokenId size) {
  std::vector<TokenId> allowed;
  for (TokenId id = 0; id < size; ++id) {
    if ((mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
  }
  return allowed;
}

Mask filled(TokenGrammar& grammar, TokenId size) {
  Mask mask(static_cast<std::size_t>(size) / 32 + 3, 0xABCDABCD);  // rows of logits may be longer than the vocabulary
  if (!grammar.fill_mask(mask)) std::fill(mask.begin(), mask.end(), ~uint32_t{0});
  return mask;
}

/// How much a token closes.
int closing(std::string_view bytes) {
  if (bytes.empty()) return 5;  // a stop id
  if (bytes == "\"" || bytes == "}" || bytes == "]" || bytes == "</" || bytes == "0") return 4;
  const bool closes = bytes.find_first_of("\"}]>") != std::string_view::npos;
  return (closes ? 2 : 0) + (bytes.find_first_of("[{,") == std::string_view::npos ? 1 : 0);
}

TokenId choose(const std::vector<TokenId>& allowed, const Tokenizer& tokenizer, std::mt19937& random, bool closes) {
  TokenId best = allowed[random() % allowed.size()];
  if (!closes) return best;
  const auto shown = [&](TokenId id) { return tokenizer.is_special(id) ? std::string_view() : tokenizer.token_bytes(id); };
  for (const TokenId id : allowed) {
    if (closing(shown(id)) > closing(shown(best))) best = id;
  }
  return best;
}

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

/// Goes on for some tokens, and back: the mask must be what it was.
void look_ahead(TokenGrammar& grammar, const Tokenizer& tokenizer, std::mt19937& random, const Mask& mask) {
  int64_t num_accepted = 0;
  for (; num_accepted < 4 && !grammar.is_terminated(); ++num_accepted) {
    const std::vector<TokenId> allowed = allowed_of(filled(grammar, tokenizer.size()), tokenizer.size());
    require(!allowed.empty() && grammar.accept(allowed[random() % allowed.size()]), "a draft that a mask allows is refused");
  }
  grammar.rollback(num_accepted);
  require(filled(grammar, tokenizer.size()) == mask, "a mask is another one after a rollback");
}

}  // namespace

Walk random_walk(TokenGrammar& grammar, const Tokenizer& tokenizer, std::mt19937& random, std::size_t patience,
                 std::size_t max_tokens) {
  using Clock = std::chrono::steady_clock;
  Walk walk;
  while (!grammar.is_terminated() && walk.ids.size() < max_tokens) {
    const Clock::time_point begin = Clock::now();
    const Mask mask = filled(grammar, tokenizer.size());
    walk.mask_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    const std::vector<TokenId> allowed = allowed_of(mask, tokenizer.size());
    require(!allowed.empty(), "no token is allowed");
    if (random() % 8 == 0) look_ahead(grammar, tokenizer, random, mask);
    const auto refused = static_cast<TokenId>(random() % static_cast<uint32_t>(tokenizer.size()));
    if (!std::binary_search(allowed.begin(), allowed.end(), refused))
      require(!grammar.accept(refused), "a token that a mask forbids is accepted");
    const TokenId id = choose(allowed, tokenizer, random, walk.ids.size() >= patience);
    require(grammar.accept(id), "a token that a mask allows is refused");
    walk.ids.push_back(id);
  }
  walk.terminated = grammar.is_terminated();
  walk.text = tokenizer.decode(walk.ids, SpecialTokens::kSkip);
  return walk;
}

}  // namespace ferry::test
