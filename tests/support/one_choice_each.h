#pragma once

#include <utility>
#include <vector>

#include "runtime/schedule/step_plan.h"

namespace ferry::test {

/// A step's choices without drafts: one token for each entry that samples.
class OneChoiceEach {
 public:
  explicit OneChoiceEach(std::vector<TokenId> tokens) : tokens_(std::move(tokens)), ones_(tokens_.size(), 1) {}
  operator StepChoices() const { return {.tokens = tokens_, .num_tokens = ones_}; }

 private:
  std::vector<TokenId> tokens_;
  std::vector<int32_t> ones_;
};

}  // namespace ferry::test
