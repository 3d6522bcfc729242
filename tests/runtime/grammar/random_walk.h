#pragma once

#include <random>
#include <string>
#include <vector>

#include "runtime/schedule/token_grammar.h"
#include "runtime/text/tokenizer.h"

namespace ferry::test {

struct Walk {
  std::vector<TokenId> ids;
  std::string text;
  bool terminated = false;
  std::vector<double> mask_us;  // what each mask took
};

/// Completes under `grammar` as a model of no sense would: any allowed token, all as likely as another; after `patience` tokens
/// the ones that close something. Now and then it accepts some tokens more and rolls them back, as behind drafts. Throws
/// std::logic_error where a mask and accept() contradict each other, or nothing is allowed.
Walk random_walk(TokenGrammar& grammar, const Tokenizer& tokenizer, std::mt19937& random, std::size_t patience = 120,
                 std::size_t max_tokens = 600);

}  // namespace ferry::test
