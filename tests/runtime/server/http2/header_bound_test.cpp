#include "runtime/server/http2/header_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/runtime/server/http2/frames.h"

namespace ferry {
namespace {

using test::frame;
using test::greeting;
using test::kContinuationFrame;
using test::kDataFrame;
using test::kEndHeaders;
using test::kHeadersFrame;
using test::kNoFlags;

constexpr int64_t kMost = 100;
constexpr std::size_t kFrameHeader = 9;

/// Gives `text` in pieces of `size` bytes. Returns whether all of it was taken.
bool takes(HeaderBound& bound, const std::string& text, std::size_t size) {
  for (std::size_t begin = 0; begin < text.size(); begin += size) {
    const std::string piece = text.substr(begin, size);
    if (!bound.take({reinterpret_cast<const uint8_t*>(piece.data()), piece.size()})) return false;
  }
  return true;
}

/// Whether a new connection that sends this is let through, however it is cut into pieces.
bool passes(const std::string& text) {
  HeaderBound whole(kMost);
  const bool result = takes(whole, text, text.size());
  for (const std::size_t size : {1, 2, 7, 9, 10, 24, 50}) {
    HeaderBound bound(kMost);
    EXPECT_EQ(takes(bound, text, size), result) << "in pieces of " << size;
  }
  return result;
}

TEST(HeaderBound, KnowsWhoSpeaksHttp2) {
  EXPECT_TRUE(passes(greeting()));
  EXPECT_FALSE(passes("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  std::string wrong(HeaderBound::kPreface);
  wrong.back() = ' ';
  EXPECT_FALSE(passes(wrong));
}

TEST(HeaderBound, SaysWhenThePrefaceHasCome) {
  HeaderBound bound(kMost);
  const std::string preface(HeaderBound::kPreface);
  EXPECT_TRUE(takes(bound, preface.substr(0, preface.size() - 1), 5));
  EXPECT_FALSE(bound.has_begun());
  EXPECT_TRUE(takes(bound, preface.substr(preface.size() - 1), 1));
  EXPECT_TRUE(bound.has_begun());
}

TEST(HeaderBound, ABlockMayBeAsLongAsAllowed) {
  const std::string most(kMost - kFrameHeader, 'h');
  EXPECT_TRUE(passes(greeting() + frame(kHeadersFrame, kEndHeaders, most)));
  EXPECT_FALSE(passes(greeting() + frame(kHeadersFrame, kEndHeaders, most + "h")));
  const std::string half(kMost / 2 - kFrameHeader, 'h');
  const std::string first = greeting() + frame(kHeadersFrame, kNoFlags, half);
  EXPECT_TRUE(passes(first + frame(kContinuationFrame, kEndHeaders, half)));
  EXPECT_FALSE(passes(first + frame(kContinuationFrame, kEndHeaders, half + "h")));
}

TEST(HeaderBound, AnnouncedBytesCountBeforeTheyCome) {
  HeaderBound bound(kMost);
  const std::string block = frame(kHeadersFrame, kNoFlags, std::string(kMost, 'h'));
  EXPECT_TRUE(takes(bound, greeting(), 1000));
  EXPECT_FALSE(takes(bound, block.substr(0, kFrameHeader), 1000));
}

TEST(HeaderBound, ABlockWithoutAnEndIsFoundHoweverSmallItsFramesAre) {
  for (const std::size_t size : {0, 1, 20}) {
    std::string text = greeting() + frame(kHeadersFrame, kNoFlags, "");
    for (int64_t sent = 0; sent <= kMost; sent += kFrameHeader)
      text += frame(kContinuationFrame, kNoFlags, std::string(size, 'h'));
    EXPECT_FALSE(passes(text)) << "frames of " << size << " bytes";
  }
}

TEST(HeaderBound, EachBlockOfAConnectionIsBounded) {
  const std::string good = frame(kHeadersFrame, kEndHeaders, std::string(kMost / 2, 'h'));
  std::string text = greeting();
  for (int i = 0; i < 20; ++i) text += good + frame(kDataFrame, kNoFlags, std::string(1000, 'd'));
  EXPECT_TRUE(passes(text)) << "blocks that end do not add up, and data has other bounds";
  EXPECT_FALSE(passes(text + frame(kHeadersFrame, kNoFlags, std::string(kMost, 'h'))));
}

TEST(HeaderBound, OtherFramesDoNotEndABlock) {
  const std::string half = frame(kHeadersFrame, kNoFlags, std::string(kMost / 2, 'h'));
  EXPECT_FALSE(passes(greeting() + half + frame(kDataFrame, kEndHeaders, "d") + half));
}

}  // namespace
}  // namespace ferry
