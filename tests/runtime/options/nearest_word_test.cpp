#include "runtime/options/nearest_word.h"

#include <gtest/gtest.h>

#include <vector>

namespace ferry {
namespace {

TEST(NearestWord, NeedsTheFewestChanges) {
  const std::vector<std::string> words = {"model", "memory", "max-seqs", "max-tokens", "serve"};
  for (const auto& [typed, meant] : {std::pair("modle", "model"),
                                     {"mode", "model"},
                                     {"moddel", "model"},
                                     {"nodel", "model"},
                                     {"model", "model"},
                                     {"max-seq", "max-seqs"},
                                     {"max-tokes", "max-tokens"},
                                     {"sevre", "serve"}})
    EXPECT_EQ(nearest_word(typed, words), meant) << typed;
  for (const char* typed : {"", "x", "modify", "something", "max"})
    EXPECT_EQ(nearest_word(typed, words), std::nullopt) << typed;
  EXPECT_EQ(nearest_word(std::string(1 << 20, 'm'), words), std::nullopt);
  EXPECT_EQ(nearest_word("model", {}), std::nullopt);
}

}  // namespace
}  // namespace ferry
