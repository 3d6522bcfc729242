#include "runtime/unit_contents.h"

#include <gtest/gtest.h>

#include "runtime/vision/prompt_media.h"

namespace ferry {
namespace {

std::shared_ptr<const Medium> medium_of(int digest) {
  Medium medium;
  medium.digest = {static_cast<std::byte>(digest)};
  return std::make_shared<const Medium>(std::move(medium));
}

/// A prompt of 40 tokens, with spans {first token, tokens, medium, first row} of media with these digests.
Request salted_request(const std::vector<MediaSpan>& spans, const std::vector<int>& digests, const std::string& salt = "") {
  Request request;
  request.prompt.assign(40, 1);
  request.cache_salt = salt;
  if (spans.empty()) return request;
  PromptMedia media;
  media.spans = spans;
  for (const int digest : digests) media.media.push_back(medium_of(digest));
  request.media = std::make_shared<const PromptMedia>(std::move(media));
  return request;
}

std::vector<int64_t> units_of(const std::vector<UnitContent>& contents) {
  std::vector<int64_t> units;
  for (const UnitContent& content : contents) units.push_back(content.unit);
  return units;
}

TEST(UnitContents, TextWithoutASaltHasNone) { EXPECT_TRUE(unit_contents(salted_request({}, {}), 8).empty()); }

TEST(UnitContents, ASaltIsTheFirstUnits) {
  const auto a = unit_contents(salted_request({}, {}, "a"), 8), b = unit_contents(salted_request({}, {}, "b"), 8);
  EXPECT_EQ(units_of(a), std::vector<int64_t>{0});
  EXPECT_NE(a[0].digest, b[0].digest);
  EXPECT_EQ(a[0].digest, unit_contents(salted_request({}, {}, "a"), 8)[0].digest);
  Request brief = salted_request({}, {}, "a");
  brief.prompt.resize(7);
  EXPECT_TRUE(unit_contents(brief, 8).empty()) << "there is no unit";
}

TEST(UnitContents, PicturesAreThoseOfTheUnitsThatTheyLieIn) {
  const std::vector<MediaSpan> spans = {{.first_token = 6, .num_tokens = 4, .medium = 0},
                                        {.first_token = 24, .num_tokens = 8, .medium = 1}};
  const auto contents = unit_contents(salted_request(spans, {1, 2}), 8);
  EXPECT_EQ(units_of(contents), (std::vector<int64_t>{0, 1, 3}));
  EXPECT_NE(contents[0].digest, contents[1].digest) << "other parts of one picture";
  const auto other = unit_contents(salted_request(spans, {1, 3}), 8);
  EXPECT_EQ(other[0].digest, contents[0].digest);
  EXPECT_EQ(other[1].digest, contents[1].digest);
  EXPECT_NE(other[2].digest, contents[2].digest);
  EXPECT_NE(unit_contents(salted_request(spans, {1, 2}, "a"), 8)[0].digest, contents[0].digest) << "and the salt";
}

TEST(UnitContents, WhereAPictureLiesCounts) {
  const auto digest_of = [](const MediaSpan& span) { return unit_contents(salted_request({span}, {1}), 8).at(0).digest; };
  const MediaSpan span{.first_token = 2, .num_tokens = 4, .medium = 0, .first_row = 0};
  EXPECT_EQ(digest_of(span), digest_of(span));
  EXPECT_NE(digest_of(span), digest_of({.first_token = 3, .num_tokens = 4, .medium = 0, .first_row = 0}));
  EXPECT_NE(digest_of(span), digest_of({.first_token = 2, .num_tokens = 5, .medium = 0, .first_row = 0}));
  EXPECT_NE(digest_of(span), digest_of({.first_token = 2, .num_tokens = 4, .medium = 0, .first_row = 1}));
}

TEST(UnitContents, SeveralPicturesOfAUnitCount) {
  const std::vector<MediaSpan> spans = {{.first_token = 1, .num_tokens = 2, .medium = 0},
                                        {.first_token = 4, .num_tokens = 2, .medium = 1}};
  const auto digest_of = [&](int first, int second) {
    return unit_contents(salted_request(spans, {first, second}), 8).at(0).digest;
  };
  EXPECT_NE(digest_of(1, 2), digest_of(1, 3));
  EXPECT_NE(digest_of(1, 2), digest_of(2, 1));
}

}  // namespace
}  // namespace ferry
