#include "runtime/media_intake.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/base/error.h"
#include "tests/runtime/vision/png_file.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using test::bytes_of;
using test::drawn_picture;
using test::expect_error;
using test::png_of;

const std::filesystem::path& demo() {
  static const std::filesystem::path folder = test::source_folder() / "launch" / "demo";
  return folder;
}

const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(demo());
  return tokenizer;
}

const VisionConfig& demo_config() {
  static const VisionConfig config = load_vision_config(demo()).value();
  return config;
}

constexpr int64_t kPictureBytes = 128 * 128 * 3;

MediaIntake intake_for(int64_t num_pictures, const Tokenizer* tokenizer = nullptr) {
  return {demo_config(), tokenizer, {}, num_pictures * kPictureBytes};
}

/// Another picture for each number.
std::shared_ptr<const Medium> read_one(const MediaIntake& intake, int64_t number = 0) {
  const std::string file = png_of(drawn_picture(128, 128, number));
  return intake.read_picture(bytes_of(file), "picture 1");
}

VideoFiles video_of(const std::vector<std::string>& files) {
  return {.num_frames = std::ssize(files), .frame = [&](int64_t i) { return bytes_of(files[static_cast<std::size_t>(i)]); }};
}

TEST(MediaIntake, CountsWhatIsHeld) {
  const MediaIntake intake = intake_for(2);
  auto one = read_one(intake), two = read_one(intake, 1);
  EXPECT_EQ(kPictureBytes, one->num_bytes());
  expect_error([&] { read_one(intake, 2); }, ErrorCode::kResourceExhausted,
               {std::to_string(2 * kPictureBytes), std::to_string(kPictureBytes) + " more", "try again later"});
  const auto copy = one;
  one.reset();
  expect_error([&] { read_one(intake, 2); }, ErrorCode::kResourceExhausted, {"try again later"});
  two.reset();
  two = read_one(intake, 2);
  EXPECT_NE(copy->digest, two->digest);
}

TEST(MediaIntake, AFileThatIsHeldIsTheSameMedium) {
  const MediaIntake intake = intake_for(1);
  const auto one = read_one(intake);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(one, read_one(intake)) << "and it takes no more memory";
}

TEST(MediaIntake, VideosCountAllTheirFrames) {
  const std::vector<std::string> files(4, png_of(drawn_picture(128, 128)));
  expect_error([&] { intake_for(3).read_video(video_of(files), "video 1"); }, ErrorCode::kInvalidArgument,
               {"video 1", std::to_string(4 * kPictureBytes), "--picture-memory " + std::to_string(3 * kPictureBytes)});
  const MediaIntake intake = intake_for(5);
  const auto video = intake.read_video(video_of(files), "video 1");
  const auto picture = read_one(intake);
  expect_error([&] { read_one(intake, 1); }, ErrorCode::kResourceExhausted, {"try again later"});
}

TEST(MediaIntake, WhatIsTooMuchAloneIsNotTriedAgain) {
  const MediaIntake intake = intake_for(2);
  const std::string file = png_of(drawn_picture(128, 128));
  const auto one = read_one(intake, 1), two = read_one(intake, 2);
  expect_error([&] { intake.read_picture(bytes_of(file), "picture 2", {.held_bytes = kPictureBytes}); },
               ErrorCode::kResourceExhausted, {"try again later"});
  expect_error([&] { intake.read_picture(bytes_of(file), "picture 3", {.held_bytes = 2 * kPictureBytes}); },
               ErrorCode::kInvalidArgument,
               {"picture 3", std::to_string(3 * kPictureBytes), std::to_string(2 * kPictureBytes)});
}

TEST(MediaIntake, WhatIsRefusedIsNotCounted) {
  const MediaIntake intake = intake_for(1);
  for (int i = 0; i < 3; ++i)
    expect_error([&] { intake.read_picture(bytes_of("none"), "picture 3"); }, ErrorCode::kInvalidArgument, {"picture 3"});
  const auto held = read_one(intake);
  for (int i = 1; i < 4; ++i) expect_error([&] { read_one(intake, i); }, ErrorCode::kResourceExhausted, {"try again later"});
}

TEST(MediaIntake, MediaMayOutliveIt) {
  std::shared_ptr<const Medium> medium;
  {
    const MediaIntake intake = intake_for(1);
    medium = read_one(intake);
  }
  EXPECT_EQ(kPictureBytes, medium->num_bytes());
}

TEST(MediaIntake, ManyThreadsMayRead) {
  // There is room for five, and a thread holds two at most: whenever one is refused, another one has both of its own.
  const MediaIntake intake = intake_for(5);
  std::vector<std::thread> threads;
  std::atomic<int> num_read = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        try {
          const auto one = read_one(intake, 2 * t), two = read_one(intake, 2 * t + 1);
          EXPECT_NE(one->digest, two->digest);
          ++num_read;
        } catch (const Error& error) {
          EXPECT_EQ(ErrorCode::kResourceExhausted, error.code());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_read, 0);
  std::vector<std::shared_ptr<const Medium>> all;
  for (int i = 0; i < 5; ++i) all.push_back(read_one(intake, i));  // all is given back
}

TEST(MediaIntake, PlaceholdersAreTheTemplates) {
  const MediaIntake intake = intake_for(1, &demo_tokenizer());
  EXPECT_EQ("<|vision_start|><|image_pad|><|vision_end|>", intake.placeholder(Medium::Kind::kPicture));
  EXPECT_EQ("<|vision_start|><|video_pad|><|vision_end|>", intake.placeholder(Medium::Kind::kVideo));
}

TEST(MediaIntake, PlacesMediaInText) {
  const MediaIntake intake = intake_for(9, &demo_tokenizer());
  const std::vector<std::string> files(4, png_of(drawn_picture(128, 128)));
  const std::vector<std::shared_ptr<const Medium>> media{read_one(intake), intake.read_video(video_of(files), "video 1")};
  const std::string text = "a " + intake.placeholder(Medium::Kind::kVideo) + " b" + intake.placeholder(Medium::Kind::kPicture);
  const MediaPrompt prompt = intake.place(demo_tokenizer().encode(text), media);
  ASSERT_EQ(3U, prompt.media->spans.size());
  EXPECT_EQ(1U, prompt.media->spans[0].medium);
  EXPECT_EQ(16, prompt.media->spans[1].first_row);
  EXPECT_EQ(0U, prompt.media->spans[2].medium);
  const std::string all = demo_tokenizer().decode(prompt.ids, SpecialTokens::kSkip);
  EXPECT_EQ("a <0.2 seconds><1.2 seconds> b", all);
}

TEST(MediaIntake, WithoutATokenizerThereAreIds) {
  const MediaIntake intake = intake_for(9);
  const std::vector<std::string> files(4, png_of(drawn_picture(128, 128)));
  const VisionTokens& tokens = demo_config().tokens;
  const std::vector<std::shared_ptr<const Medium>> picture{read_one(intake)}, video{intake.read_video(video_of(files), "v")};
  const std::vector<TokenId> with_picture{1, tokens.image, 2}, with_video{1, tokens.video, 2};
  EXPECT_EQ(18U, intake.place(with_picture, picture).ids.size());
  expect_error([&] { intake.place(with_video, video); }, ErrorCode::kFailedPrecondition, {"time stamps", "tokenizer"});
  expect_error([&] { intake.placeholder(Medium::Kind::kPicture); }, ErrorCode::kFailedPrecondition, {"tokenizer", "token ids"});
}

TEST(MediaIntake, RefusesLimitsAsItsReaderDoes) {
  expect_error([] { MediaIntake(demo_config(), nullptr, {.picture = {}, .max_tokens = 15}, 1 << 30); },
               ErrorCode::kInvalidArgument, {"--picture-tokens is 15", "at least 16"});
}

}  // namespace
}  // namespace ferry
