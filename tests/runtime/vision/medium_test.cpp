#include "runtime/vision/medium.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/runtime/vision/png_file.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using test::bytes_of;
using test::drawn_picture;
using test::expect_error;
using test::png_of;

/// Tokens of 8 x 8 pixels; pictures have at least 4 of them.
constexpr PictureProcessor kSmall{.patch_size = 4, .merge_size = 2, .min_pixels = 256, .max_pixels = 1 << 16};
constexpr VideoProcessor kSmallVideo{
    .frames = {.patch_size = 4, .merge_size = 2, .min_pixels = 256, .max_pixels = 1 << 20}, .fps = 2.0, .min_frames = 4};

MediumReader reader_of(int64_t max_tokens, int64_t max_frames = 100) {
  return MediumReader(kSmall, kSmallVideo, {.picture = {}, .max_tokens = max_tokens, .max_frames = max_frames});
}

Medium read_medium(const Picture& picture, int64_t max_tokens = 64) {
  return reader_of(max_tokens).read_picture(bytes_of(png_of(picture)), "picture 7");
}

/// Frames of a video as files; remembers which were asked for.
struct FrameFiles {
  explicit FrameFiles(int64_t num_frames, int64_t height = 32, int64_t width = 40) {
    for (int64_t i = 0; i < num_frames; ++i) files.push_back(png_of(drawn_picture(height, width, 5 * i)));
  }
  VideoFiles video(std::optional<double> fps = {}) {
    return {.num_frames = std::ssize(files),
            .frame =
                [this](int64_t i) {
                  asked.push_back(i);
                  return bytes_of(files[static_cast<std::size_t>(i)]);
                },
            .fps = fps};
  }

  std::vector<std::string> files;
  std::vector<int64_t> asked;
};

TEST(MediumReader, APictureIsThatOfTheProcessor) {
  const Picture picture = drawn_picture(41, 62);
  const Medium medium = read_medium(picture);
  EXPECT_EQ(Medium::Kind::kPicture, medium.kind);
  EXPECT_EQ((Grid{1, 10, 16}), medium.grid);
  ASSERT_EQ(1U, medium.frames.size());
  EXPECT_EQ(40 * 64 * 3, medium.num_bytes());
  EXPECT_TRUE(medium.times.empty());
  const Patches expected = make_patches(picture, kSmall), actual = reader_of(64).patches_of(medium, 0, 1);
  EXPECT_EQ(expected.grid, actual.grid);
  EXPECT_EQ(expected.values, actual.values);
}

TEST(MediumReader, LargePicturesAreScaledDownToTheTokens) {
  for (const int64_t max_tokens : {4, 5, 16, 63, 64, 1000}) {
    for (const auto& [height, width] : {std::pair<int64_t, int64_t>{256, 256}, {100, 300}, {300, 100}, {160, 160}, {16, 16}}) {
      const Grid grid = read_medium(drawn_picture(height, width), max_tokens).grid;
      const int64_t num_tokens = grid.num_patches() / 4, given = height / 8 * (width / 8);
      EXPECT_LE(num_tokens, max_tokens) << width << " x " << height;
      EXPECT_GE(num_tokens, std::min(max_tokens, given) / 2) << width << " x " << height;
    }
  }
  EXPECT_EQ((Grid{1, 64, 64}), read_medium(drawn_picture(256, 256), 1024).grid) << "as many as are allowed";
}

TEST(MediumReader, PicturesThatCannotShrinkAreRefused) {
  EXPECT_EQ((Grid{1, 2, 400}), read_medium(drawn_picture(8, 1600), 200).grid);
  expect_error([] { read_medium(drawn_picture(8, 1600), 16); }, ErrorCode::kInvalidArgument,
               {"picture 7", "1600 x 8 pixels", "tokens", "allowed: at most 16"});
  expect_error([] { read_medium(drawn_picture(8, 1601), 1000); }, ErrorCode::kInvalidArgument, {"picture 7", "200 times"});
}

TEST(MediumReader, FilesHaveLimits) {
  const MediumReader reader(kSmall, kSmallVideo, {.picture = {.max_bytes = 5060, .max_pixels = 1600}, .max_tokens = 64});
  const auto read = [&](int64_t height, int64_t width) {
    return reader.read_picture(bytes_of(png_of(drawn_picture(height, width))), "picture 7");
  };
  EXPECT_EQ((Grid{1, 10, 10}), read(40, 40).grid);
  expect_error([&] { read(40, 41); }, ErrorCode::kInvalidArgument, {"picture 7", "41 x 40 pixels"});
  expect_error([&] { read(41, 41); }, ErrorCode::kInvalidArgument, {"picture 7", "bytes", "at most 5060"});
  expect_error([&] { reader.read_picture(bytes_of("no picture"), "picture 7"); }, ErrorCode::kInvalidArgument, {"picture 7"});
}

TEST(MediumReader, TooFewTokensForAnyPictureAreRefused) {
  expect_error([] { reader_of(3); }, ErrorCode::kInvalidArgument, {"--picture-tokens is 3", "0 (no pictures)", "at least 4"});
  reader_of(4);
}

TEST(MediumReader, AVideoWithoutRateIsLookedAtWhole) {
  FrameFiles frames(5);
  const Medium medium = reader_of(64).read_video(frames.video(), "video 1");
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2, 3, 4}), frames.asked);
  EXPECT_EQ(Medium::Kind::kVideo, medium.kind);
  EXPECT_EQ((Grid{3, 8, 10}), medium.grid);
  EXPECT_EQ((std::vector<double>{0.25, 1.25, 2.0}), medium.times) << "at the rate of the checkpoint";
  EXPECT_EQ(5U, medium.frames.size());
}

TEST(MediumReader, OnlySampledFramesAreAskedFor) {
  FrameFiles frames(41);
  const Medium medium = reader_of(64).read_video(frames.video(8.0), "video 1");
  EXPECT_EQ((std::vector<int64_t>{0, 4, 9, 13, 18, 22, 27, 31, 36, 40}), frames.asked);
  EXPECT_EQ(5, medium.grid.t);
  EXPECT_EQ((std::vector<double>{0.25, 1.375, 2.5, 3.625, 4.75}), medium.times);
}

TEST(MediumReader, StepsOfTimeOfAVideoAreCutAlone) {
  FrameFiles frames(7);
  const MediumReader reader = reader_of(64);
  const Medium medium = reader.read_video(frames.video(), "video 1");
  const Patches whole = reader.patches_of(medium, 0, 4);
  EXPECT_EQ((Grid{4, 8, 10}), whole.grid);
  for (int64_t first = 0; first < 4; ++first) {
    const Patches part = reader.patches_of(medium, first, 2);
    EXPECT_EQ(std::min<int64_t>(2, 4 - first), part.grid.t);
    const auto begin = whole.values.begin() + first * 80 * kSmall.patch_cols();
    EXPECT_TRUE(std::equal(part.values.begin(), part.values.end(), begin)) << first;
  }
}

TEST(MediumReader, StepsOfLargeVideosAreScaledDownToTheTokens) {
  for (const int64_t num_frames : {2, 3, 4, 5, 6, 7, 9}) {
    for (const auto& [height, width] : {std::pair<int64_t, int64_t>{72, 64}, {80, 80}, {96, 64}, {160, 120}}) {
      FrameFiles frames(num_frames, height, width);
      const Medium medium = reader_of(64).read_video(frames.video(), "video 1");
      EXPECT_EQ((num_frames + 1) / 2, medium.grid.t);
      EXPECT_LE(medium.grid.step_patches() / 4, 64) << num_frames << " frames of " << width << " x " << height;
      EXPECT_GE(medium.grid.step_patches() / 4, 24) << num_frames << " frames of " << width << " x " << height;
    }
  }
}

TEST(MediumReader, FramesOfOneSize) {
  FrameFiles frames(4);
  frames.files[2] = png_of(drawn_picture(32, 41));
  expect_error([&] { reader_of(64).read_video(frames.video(), "video 1"); }, ErrorCode::kInvalidArgument,
               {"video 1", "frame 2", "41 x 32", "40 x 32"});
  frames.files[2] = "broken";
  expect_error([&] { reader_of(64).read_video(frames.video(), "video 1"); }, ErrorCode::kInvalidArgument, {"video 1, frame 2"});
}

TEST(MediumReader, VideosHaveFramesAndARate) {
  FrameFiles none(0), one(1), some(4), many(11);
  const auto refused = [](const VideoFiles& files, const std::vector<std::string>& parts) {
    expect_error([&] { reader_of(64, 10).read_video(files, "video 1"); }, ErrorCode::kInvalidArgument, parts);
  };
  refused(none.video(), {"video 1", "0 frames", "2 to 10"});
  refused(many.video(), {"video 1", "11 frames", "2 to 10"});
  refused(one.video(), {"video 1", "1 frames", "2 to 10"});
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double fps : {0.0, -1.0, 0.0009, 1000001.0, 1e300, kInfinity, -kInfinity, std::nan("")})
    refused(some.video(fps), {"video 1: fps is '", "'; allowed: 0.001 to 1000000"});
  EXPECT_TRUE(many.asked.empty() && some.asked.empty());
  for (const double fps : {kLowestFps, kHighestFps})
    EXPECT_EQ(4U, reader_of(64).read_video(some.video(fps), "video 1").frames.size());
}

TEST(MediumReader, AVideoMayHaveItsOwnLimitAndNamesOfFrames) {
  FrameFiles frames(4);
  VideoFiles video = frames.video();
  video.max_frames = 3;
  expect_error([&] { reader_of(64).read_video(video, "video 1"); }, ErrorCode::kInvalidArgument, {"4 frames", "2 to 3"});
  video.max_frames = 1000;
  video.frame_name = [](int64_t i) { return "file " + std::string(1, static_cast<char>('a' + i)); };
  frames.files[2] = png_of(drawn_picture(32, 41));
  expect_error([&] { reader_of(64).read_video(video, "video 1"); }, ErrorCode::kInvalidArgument,
               {"file c: it has 41 x 32", "allowed: 40 x 32 as file a"});
}

/// The smallest number of tokens is met by few sizes: others are rounded up, beyond what is allowed.
TEST(MediumReader, SmallPicturesMayNeedMoreTokensThanTheFewest) {
  EXPECT_EQ((Grid{1, 4, 4}), read_medium(drawn_picture(1, 1), 4).grid);
  EXPECT_EQ((Grid{1, 4, 6}), read_medium(drawn_picture(9, 13), 6).grid);
  expect_error([] { read_medium(drawn_picture(9, 13), 5); }, ErrorCode::kInvalidArgument,
               {"picture 7: 13 x 9 pixels become 6 tokens; allowed: at most 5 (--picture-tokens"});
}

TEST(MediumDigest, IsOfWhatTheTowerSees) {
  const Picture picture = drawn_picture(32, 64);
  const MediumDigest digest = read_medium(picture).digest;
  EXPECT_EQ(digest, read_medium(picture).digest);
  for (const std::size_t place : {std::size_t{0}, picture.rgb.size() - 1}) {
    Picture other = picture;
    other.rgb[place] ^= 1;
    EXPECT_NE(digest, read_medium(other).digest) << "byte " << place;
  }
  Picture turned = picture;
  std::swap(turned.width, turned.height);
  EXPECT_NE(digest, read_medium(turned).digest) << "the same bytes in another size";
  EXPECT_EQ(read_medium(picture, 16).digest, read_medium(picture, 17).digest);
  EXPECT_NE(digest, read_medium(picture, 16).digest) << "scaled down";
}

TEST(MediumDigest, OfAVideoIsNotThatOfPictures) {
  FrameFiles frames(4), others(4);
  std::swap(others.files[1], others.files[2]);
  const MediumReader reader = reader_of(64);
  const MediumDigest digest = reader.read_video(frames.video(), "").digest;
  EXPECT_EQ(digest, reader.read_video(frames.video(1.0), "").digest) << "the rate is text";
  EXPECT_NE(digest, reader.read_video(others.video(), "").digest) << "frames in another order";
  EXPECT_NE(digest, reader.read_picture(bytes_of(frames.files[0]), "").digest);
}

TEST(MediumDigest, DoesNotDependOnTheFileType) {
  const MediumReader reader = reader_of(64);
  for (const char* name : {"interlaced.gif", "alpha.webp", "rgb_16.png"}) {
    const std::filesystem::path path = test::golden_folder("vision") / name;
    const MediumDigest digest = reader.read_picture(bytes_of(test::read_file(path)), name).digest;
    EXPECT_EQ(digest, reader.read_picture(bytes_of(png_of(test::read_picture(path))), name).digest) << name;
  }
}

}  // namespace
}  // namespace ferry
