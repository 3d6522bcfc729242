#include "runtime/server/front/prompt_pieces.h"

#include <gtest/gtest.h>

#include <string>

namespace ferry {
namespace {

constexpr std::size_t kPiece = PromptPieces::kPieceBytes;

std::vector<uint64_t> beginnings_of(std::string_view text, std::string_view salt = "") {
  PromptPieces pieces(salt);
  pieces.add(text);
  return pieces.beginnings();
}

TEST(PromptPieces, AreWholeAndChained) {
  const std::string a(kPiece, 'a'), b(kPiece, 'b');
  EXPECT_TRUE(beginnings_of(a.substr(1)).empty());
  const auto ab = beginnings_of(a + b + "rest"), aa = beginnings_of(a + a), ba = beginnings_of(b + a);
  ASSERT_EQ(ab.size(), 2u);
  EXPECT_EQ(ab[0], aa[0]);
  EXPECT_NE(ab[1], aa[1]);
  EXPECT_NE(aa[0], aa[1]);  // the same piece behind another beginning
  EXPECT_NE(aa[1], ba[1]);
  EXPECT_NE(beginnings_of(a, "salt"), beginnings_of(a));
}

TEST(PromptPieces, DoNotDependOnHowTheTextComes) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::to_string(i * i);
  PromptPieces pieces("");
  for (std::size_t i = 0; i < text.size(); i += 7) pieces.add(std::string_view(text).substr(i, 7));
  EXPECT_EQ(pieces.beginnings(), beginnings_of(text));
  PromptPieces tokens(""), others("");
  for (uint32_t id = 0; id < 64; ++id) tokens.add_token(id);
  for (uint32_t id = 0; id < 64; ++id) others.add_token(id == 63 ? 0 : id);
  ASSERT_EQ(tokens.beginnings().size(), 1u);
  EXPECT_NE(tokens.beginnings(), others.beginnings());
}

TEST(PromptPieces, EndAtTheirBound) {
  PromptPieces pieces("");
  const std::string mib(std::size_t{1} << 20, 'x');
  pieces.add(mib.substr(1));
  EXPECT_FALSE(pieces.is_full());
  pieces.add(mib);
  EXPECT_TRUE(pieces.is_full());
  EXPECT_EQ(pieces.beginnings().size(), PromptPieces::kMaxPieces);
}

TEST(PrefixMemory, FindsTheLongestBeginning) {
  PrefixMemory memory(10);
  const uint64_t prompt[] = {1, 2, 3}, other[] = {1, 2, 7, 3}, none[] = {9, 1, 2};
  EXPECT_EQ(memory.match(prompt), 0u);
  memory.add(prompt);
  EXPECT_EQ(memory.match(prompt), 3u);
  EXPECT_EQ(memory.match(other), 2u);
  EXPECT_EQ(memory.match(none), 0u);
  EXPECT_EQ(memory.match({}), 0u);
  memory.clear();
  EXPECT_EQ(memory.match(prompt), 0u);
}

TEST(PrefixMemory, ForgetsWhatIsOldestAndEndsBeforeBeginnings) {
  PrefixMemory memory(5);
  const uint64_t a[] = {1, 2, 3}, b[] = {11, 12, 13};
  memory.add(a);
  memory.add(b);
  EXPECT_EQ(memory.size(), 5u);
  EXPECT_EQ(memory.match(a), 2u);  // its end made room
  EXPECT_EQ(memory.match(b), 3u);
  memory.add(a);  // used again: now b has to give way
  EXPECT_EQ(memory.match(a), 3u);
  EXPECT_EQ(memory.match(b), 2u);
}

TEST(RecentMap, KeepsTheYoungest) {
  RecentMap<int> map(2);
  map.set(1, 10);
  map.set(2, 20);
  map.set(1, 11);
  map.set(3, 30);
  ASSERT_NE(map.find(1), nullptr);
  EXPECT_EQ(*map.find(1), 11);
  EXPECT_EQ(map.find(2), nullptr);
  EXPECT_NE(map.find(3), nullptr);
  EXPECT_EQ(map.size(), 2u);
}

}  // namespace
}  // namespace ferry
