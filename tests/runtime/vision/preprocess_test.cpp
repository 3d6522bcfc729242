#include "runtime/vision/preprocess.h"

#include <gtest/gtest.h>

#include <limits>

#include "runtime/vision/resize.h"
#include "tests/runtime/vision/drawn_picture.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using nlohmann::json;
using test::drawn_picture;
using test::expect_error;

const json& cases() {
  static const json value = test::read_golden(test::golden_folder("vision") / "cases.json");
  return value;
}

PictureProcessor with_budget(const json& budget) {
  return {.min_pixels = budget[0].get<int64_t>(), .max_pixels = budget[1].get<int64_t>()};
}

FrameSize size_of(const json& value) { return {.height = value[0].get<int64_t>(), .width = value[1].get<int64_t>()}; }

template <class T>
uint32_t crc_of(const std::vector<T>& values) {
  return test::crc(std::as_bytes(std::span(values)));
}

/// As the reference: a size, or none where it refuses.
template <class Fn>
void expect_size(const json& expected, Fn&& fn) {
  if (expected.empty()) {
    expect_error(fn, ErrorCode::kInvalidArgument, {"allowed: "});
  } else {
    EXPECT_EQ(size_of(expected), fn());
  }
}

void expect_patches(const json& expected, const Patches& patches) {
  EXPECT_EQ(expected["grid"], (json{patches.grid.t, patches.grid.h, patches.grid.w})) << expected;
  EXPECT_EQ(expected["crc"], crc_of(patches.values)) << expected;
}

TEST(Resize, IsTorchsBitForBit) {
  ASSERT_GE(cases()["resize"].size(), 30U);
  for (const json& c : cases()["resize"]) {
    const FrameSize from = size_of(c["from"]), to = size_of(c["to"]);
    const Picture resized = resize_bicubic(drawn_picture(from.height, from.width), to.width, to.height);
    EXPECT_EQ(c["crc"], crc_of(resized.rgb)) << c;
  }
}

TEST(Resize, OfOneColourIsThatColour) {
  Picture picture = make_picture(7, 11);
  std::fill(picture.rgb.begin(), picture.rgb.end(), uint8_t{200});
  for (const uint8_t value : resize_bicubic(picture, 90, 3).rgb) ASSERT_EQ(200, value);
}

TEST(Resize, ChecksInBetweenRows) {
  const Picture picture = drawn_picture(40, 30);
  int num_calls = 0;
  resize_bicubic(picture, 10, 20, [&] { ++num_calls; });
  EXPECT_EQ(40 + 20, num_calls);  // rows that become narrower, then rows that are written
  for (const int last : {1, 40, 41, 60}) {
    const auto leave = [&, call = 0]() mutable {
      if (++call == last) throw Error(ErrorCode::kCancelled, "the caller left");
    };
    EXPECT_THROW(resize_bicubic(picture, 10, 20, leave), Error) << last;
  }
}

TEST(PictureSize, IsTheReferences) {
  for (const json& c : cases()["picture_size"]) {
    expect_size(c["to"], [&] { return picture_size(size_of(c["from"]), with_budget(c["budget"])); });
  }
}

TEST(PictureSize, LongPicturesAreRefused) {
  expect_error([] { picture_size({.height = 5, .width = 1001}, {}, "picture 3"); }, ErrorCode::kInvalidArgument,
               {"picture 3", "1001 x 5", "200 times"});
  expect_error([] { picture_size({.height = 0, .width = 4}, {}); }, ErrorCode::kInvalidArgument, {"4 x 0"});
}

TEST(VideoSize, IsTheReferences) {
  for (const json& c : cases()["video_size"]) {
    expect_size(c["to"], [&] { return video_size(size_of(c["from"]), c["frames"].get<int64_t>(), with_budget(c["budget"])); });
  }
}

TEST(SampleFrames, AreTheReferences) {
  for (const json& c : cases()["samples"]) {
    const std::vector<int64_t> frames = sample_frames(c["frames"].get<int64_t>(), c["fps"].get<double>(), VideoProcessor{});
    EXPECT_EQ(c["crc"], crc_of(std::vector<int32_t>(frames.begin(), frames.end()))) << c;
  }
  EXPECT_EQ((std::vector<int64_t>{0}), sample_frames(1, 30.0, VideoProcessor{}));
  EXPECT_EQ(768U, sample_frames(1 << 20, 1e-300, VideoProcessor{}).size());
}

TEST(StepTimes, AreMeansOfFirstAndLastFrame) {
  const std::vector<int64_t> frames{0, 12, 24, 36, 48};
  EXPECT_EQ((std::vector<double>{0.25, 1.25, 2.0}), step_times(frames, 24.0, 2));
}

TEST(Patches, AreTheReferencesBitForBit) {
  for (const json& c : cases()["patches"]) {
    const FrameSize from = size_of(c["from"]);
    expect_patches(c, make_patches(drawn_picture(from.height, from.width), with_budget(c["budget"])));
  }
}

TEST(Patches, OfVideosAreTheReferencesBitForBit) {
  for (const json& c : cases()["video"]) {
    const FrameSize from = size_of(c["from"]);
    std::vector<Picture> frames;
    for (int64_t i = 0; i < c["frames"].get<int64_t>(); ++i) frames.push_back(drawn_picture(from.height, from.width, 5 * i));
    expect_patches(c, make_video_patches(frames, with_budget(c["budget"])));
  }
}

TEST(Patches, AreThoseOfTheModelsGoldens) {
  struct Golden {
    const char* folder;
    std::filesystem::path pictures;
    std::vector<std::string> names;
    PictureProcessor processor;
  };
  const std::vector<Golden> goldens{
      {"qwen3_5_vl", test::golden_folder("qwen3_5_vl"), {"image0.png", "image1.png", "image2.png"}, with_budget({4096, 65536})},
      {"demo_vision", test::source_folder() / "launch" / "demo" / "pictures", {"shapes0.png"}, with_budget({16384, 65536})}};
  for (const Golden& golden : goldens) {
    const json sums = test::read_golden(test::golden_folder(golden.folder) / "golden.json")["pixel_values_crc"];
    for (std::size_t i = 0; i < golden.names.size(); ++i) {
      const Patches patches = make_patches(test::read_picture(golden.pictures / golden.names[i]), golden.processor);
      EXPECT_EQ(sums["image" + std::to_string(i) + ".pixel_values"], crc_of(patches.values)) << golden.names[i];
    }
    std::vector<Picture> frames;
    for (int i = 0; i < 4; ++i) {
      frames.push_back(test::read_picture(test::golden_folder(golden.folder) / ("frame" + std::to_string(i) + ".png")));
    }
    EXPECT_EQ(sums["video.pixel_values"], crc_of(make_video_patches(frames, golden.processor).values)) << golden.folder;
  }
}

TEST(Patches, OfBadVideosAreRefused) {
  const std::vector<Picture> one{drawn_picture(40, 40)}, two{drawn_picture(40, 40), drawn_picture(40, 41)};
  expect_error([&] { make_video_patches(one, {}, "video 1"); }, ErrorCode::kInvalidArgument,
               {"video 1", "1 frames", "2 or more"});
  expect_error([&] { make_video_patches(two, {}, "video 1"); }, ErrorCode::kInvalidArgument, {"frame 1", "41 x 40", "40 x 40"});
}

}  // namespace
}  // namespace ferry
