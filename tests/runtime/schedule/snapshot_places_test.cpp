#include "runtime/schedule/snapshot_places.h"

#include <gtest/gtest.h>

#include <string>

namespace ferry {
namespace {

constexpr TokenId kStart = 9;

Request messages_prompt(int64_t num_tokens, const std::vector<int64_t>& starts) {
  Request request;
  request.prompt.assign(static_cast<std::size_t>(num_tokens), 1);
  for (const int64_t start : starts) request.prompt[static_cast<std::size_t>(start)] = kStart;
  return request;
}

/// "64 128", those of the grid in brackets.
std::string places_of(const Request& request, std::optional<TokenId> message_start = kStart, int64_t unit = 64) {
  std::vector<SnapshotPlace> places;
  choose_snapshot_places(request, unit, message_start, places);
  std::string text;
  for (const SnapshotPlace& place : places) {
    const std::string number = std::to_string(place.num_tokens);
    text += (text.empty() ? "" : " ") + (place.is_on_grid ? "[" + number + "]" : number);
  }
  return text;
}

TEST(SnapshotPlaces, OfAConversationAreInFrontOfThreeMessages) {
  EXPECT_EQ(places_of(messages_prompt(1000, {0, 200, 400, 700, 900})), "192 640 896")
      << "the second, the last but one, the last";
  EXPECT_EQ(places_of(messages_prompt(1000, {0, 200, 900})), "192 896");
  EXPECT_EQ(places_of(messages_prompt(1000, {0, 900})), "896");
  EXPECT_EQ(places_of(messages_prompt(1000, {900})), "896");
  EXPECT_EQ(places_of(messages_prompt(1000, {0, 30, 50})), "") << "none is a unit from the beginning";
}

TEST(SnapshotPlaces, LeaveATokenToCompute) {
  EXPECT_EQ(places_of(messages_prompt(128, {127})), "64");
  EXPECT_EQ(places_of(messages_prompt(129, {128})), "128");
  EXPECT_EQ(places_of(messages_prompt(64, {})), "");
  EXPECT_EQ(places_of(messages_prompt(65, {})), "64");
}

TEST(SnapshotPlaces, WithoutMessagesTheLastUnitIsOne) {
  EXPECT_EQ(places_of(messages_prompt(1000, {})), "960");
  EXPECT_EQ(places_of(messages_prompt(1000, {400}), std::nullopt), "960");
}

TEST(SnapshotPlaces, HintsSayWhereMessagesBegin) {
  Request request = messages_prompt(1000, {0, 200, 400});
  request.cache_hints = {0, 300, 500, 777};
  EXPECT_EQ(places_of(request), "256 448 768");
  request.cache_hints = {0, 5000};
  EXPECT_EQ(places_of(request), "960") << "no hint leads behind the prompt";
}

TEST(SnapshotPlaces, LongPromptsHaveSomeOnTheWay) {
  EXPECT_EQ(places_of(messages_prompt(8192, {})), "8128");
  EXPECT_EQ(places_of(messages_prompt(8193, {})), "[4096] 8192") << "one that has a better reason is not of the grid";
  EXPECT_EQ(places_of(messages_prompt(13000, {0, 100, 12900})), "64 [4096] [8192] [12288] 12864");
  EXPECT_EQ(places_of(messages_prompt(9000, {}), kStart, 112), "[4032] [8176] 8960") << "at multiples of the unit";
}

TEST(SnapshotPlaces, AreAddedOnce) {
  std::vector<SnapshotPlace> places = {{.num_tokens = 64, .key = 1}, {.num_tokens = 192, .key = 2, .is_on_grid = true}};
  add_snapshot_place(places, {.num_tokens = 128, .key = 3});
  add_snapshot_place(places, {.num_tokens = 64, .key = 4});
  add_snapshot_place(places, {.num_tokens = 192, .key = 5});
  ASSERT_EQ(places.size(), 3U);
  EXPECT_EQ(places[0].key, 1U);
  EXPECT_EQ(places[1].num_tokens, 128);
  EXPECT_FALSE(places[2].is_on_grid);
  EXPECT_EQ(places[2].key, 5U);
}

}  // namespace
}  // namespace ferry
