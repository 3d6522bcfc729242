#include "runtime/vision/prompt_media.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using Kind = Medium::Kind;
using Media = std::vector<std::shared_ptr<const Medium>>;

constexpr VisionTokens kVisionTokens{.image = 90, .video = 91, .vision_start = 80, .vision_end = 81};

std::shared_ptr<const Medium> medium_of(Kind kind, const Grid& grid) {
  Medium medium{.kind = kind, .grid = grid};
  if (kind == Kind::kVideo) medium.times.resize(static_cast<std::size_t>(grid.t), 1.5);
  return std::make_shared<const Medium>(std::move(medium));
}

MediaPrompt place(const std::vector<TokenId>& ids, const Media& media) {
  const auto one_token = [](std::string_view text) {
    EXPECT_EQ("<1.5 seconds>", text);
    return std::vector<TokenId>{70};
  };
  return place_media(ids, media, kVisionTokens, 2, one_token);
}

/// "medium@first_token+num_tokens/first_row" of every span.
std::string spans_of(const MediaPrompt& prompt) {
  std::string text;
  for (const MediaSpan& span : prompt.media->spans) {
    text += (text.empty() ? "" : " ") + std::to_string(span.medium) + "@" + std::to_string(span.first_token) + "+" +
            std::to_string(span.num_tokens) + "/" + std::to_string(span.first_row);
  }
  return text;
}

TEST(PlaceMedia, TextStaysAsItIs) {
  const MediaPrompt prompt = place({1, 2, 3}, {});
  EXPECT_EQ((std::vector<TokenId>{1, 2, 3}), prompt.ids);
  EXPECT_EQ(nullptr, prompt.media);
}

TEST(PlaceMedia, PicturesHaveOneSpanEach) {
  const Media media{medium_of(Kind::kPicture, {1, 4, 4}), medium_of(Kind::kPicture, {1, 2, 6})};
  const MediaPrompt prompt = place({1, 80, 90, 81, 2, 80, 90, 81, 3}, media);
  EXPECT_EQ("0@2+4/0 1@9+3/0", spans_of(prompt));
  EXPECT_EQ(media, prompt.media->media);
  EXPECT_EQ(14U, prompt.ids.size());
  for (const std::vector<int32_t>& axis : prompt.media->positions.axes) EXPECT_EQ(prompt.ids.size(), axis.size());
  EXPECT_EQ("0@0+4/0 1@4+3/0", spans_of(place({90, 90}, media))) << "with nothing between them";
}

TEST(PlaceMedia, StepsOfAVideoCountItsRows) {
  const MediaPrompt prompt = place({1, 80, 91, 81, 3}, {medium_of(Kind::kVideo, {3, 2, 4})});
  EXPECT_EQ((std::vector<TokenId>{1, 70, 80, 91, 91, 81, 70, 80, 91, 91, 81, 70, 80, 91, 91, 81, 3}), prompt.ids);
  EXPECT_EQ("0@3+2/0 0@8+2/2 0@13+2/4", spans_of(prompt));
}

TEST(PlaceMedia, EachKindHasItsOwnOrder) {
  const Media media{medium_of(Kind::kVideo, {2, 2, 2}), medium_of(Kind::kPicture, {1, 2, 4}),
                    medium_of(Kind::kVideo, {1, 4, 4}), medium_of(Kind::kPicture, {1, 2, 2})};
  EXPECT_EQ("1@0+2/0 0@4+1/0 0@8+1/1 2@12+4/0 3@17+1/0", spans_of(place({90, 91, 91, 90}, media)));
}

TEST(PlaceMedia, AsManyPlacesAsMedia) {
  const auto refused = [](const std::vector<TokenId>& ids, const Media& media, const std::vector<std::string>& parts) {
    test::expect_error([&] { place(ids, media); }, ErrorCode::kInvalidArgument, parts);
  };
  const Media one{medium_of(Kind::kPicture, {1, 2, 2})};
  refused({1, 2}, one, {"0 places for pictures", "allowed: 1"});
  refused({90, 90}, one, {"2 places for pictures", "allowed: 1"});
  refused({91}, one, {"places for"});
  refused({90}, {}, {"1 places for pictures", "allowed: 0"});
}

}  // namespace
}  // namespace ferry
