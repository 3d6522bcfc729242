#include "launch/media_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/runtime/vision/png_file.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;
using test::drawn_picture;
using test::expect_error;

class MediaFiles : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& bytes) const {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  /// A picture whose pixels tell its number.
  fs::path draw(const std::string& name, int64_t number) const {
    return write(name, test::png_of(drawn_picture(128, 128, number)));
  }

  std::vector<std::shared_ptr<const Medium>> read(GenerateOptions options) const { return read_media_files(options, intake_); }
  void refuse(const GenerateOptions& options, ErrorCode code, const std::vector<std::string>& parts) const {
    expect_error([&] { read(options); }, code, parts);
  }

  /// The numbers of a medium's frames.
  static std::vector<int64_t> numbers_of(const Medium& medium) {
    std::vector<int64_t> numbers;
    for (const Picture& frame : medium.frames) {
      for (int64_t number = 0; number < 20; ++number)
        if (frame.rgb == drawn_picture(128, 128, number).rgb) numbers.push_back(number);
    }
    return numbers;
  }

  const test::TempFolder folder_;
  const VisionConfig config_{.plan = {.merge_size = 2}, .tokens = {}, .pictures = {.min_pixels = 1024}, .videos = {}};
  const MediaIntake intake_{config_, nullptr, {.picture = {.max_bytes = 100000}}, 1 << 30};
};

using Numbers = std::vector<int64_t>;

TEST_F(MediaFiles, PicturesComeBeforeVideosEachInOrder) {
  const fs::path one = draw("z.png", 1), two = draw("a.png", 2);
  draw("video/1.png", 3);
  draw("video/0.png", 4);
  const auto media = read({.images = {one, two}, .videos = {folder_.path() / "video"}});
  ASSERT_EQ(3U, media.size());
  EXPECT_EQ(Numbers{1}, numbers_of(*media[0]));
  EXPECT_EQ(Numbers{2}, numbers_of(*media[1]));
  EXPECT_EQ((Numbers{4, 3}), numbers_of(*media[2]));
  EXPECT_EQ(Medium::Kind::kPicture, media[1]->kind);
  EXPECT_EQ(Medium::Kind::kVideo, media[2]->kind);
}

TEST_F(MediaFiles, FramesOfAFolderAreSortedAndHiddenOnesSkipped) {
  draw("video/010.png", 3);
  draw("video/002.png", 2);
  draw("video/001.png", 1);
  write("video/.DS_Store", "none of it");
  fs::create_directories(folder_.path() / "video" / "more");
  const auto media = read({.images = {}, .videos = {folder_.path() / "video"}});
  ASSERT_EQ(1U, media.size());
  EXPECT_EQ((Numbers{1, 2, 3}), numbers_of(*media[0]));
}

TEST_F(MediaFiles, SingleFilesAreTheFramesOfOneVideo) {
  const fs::path b = draw("b.png", 1), a = draw("a.png", 2);
  draw("video/0.png", 3);
  draw("video/1.png", 4);
  const auto media = read({.images = {}, .videos = {b, folder_.path() / "video", a}});
  ASSERT_EQ(2U, media.size());
  EXPECT_EQ((Numbers{3, 4}), numbers_of(*media[0]));
  EXPECT_EQ((Numbers{1, 2}), numbers_of(*media[1])) << "in the order of the command line";
}

TEST_F(MediaFiles, TheRateSamplesFrames) {
  for (int64_t i = 0; i < 9; ++i) draw("video/" + std::to_string(i) + ".png", i);
  GenerateOptions options{.images = {}, .videos = {folder_.path() / "video"}};
  EXPECT_EQ(9U, read(options)[0]->frames.size());
  options.fps = 4.0;
  const auto media = read(options);
  EXPECT_EQ((Numbers{0, 3, 5, 8}), numbers_of(*media[0]));
}

TEST_F(MediaFiles, WhatCannotBeReadIsNamed) {
  const std::string missing = folder_.path() / "missing.png", folder = folder_.path() / "empty";
  fs::create_directories(folder);
  const std::string text = write("text.png", "no picture"), large = write("large.png", std::string(100001, 'x'));
  refuse({.images = {missing}}, ErrorCode::kNotFound, {"--image: '" + missing + "' cannot be read (No such file"});
  refuse({.images = {folder}}, ErrorCode::kNotFound, {folder, "a picture file"});
  refuse({.images = {text}}, ErrorCode::kInvalidArgument, {"--image '" + text + "'"});
  refuse({.images = {large}}, ErrorCode::kInvalidArgument, {"--image '" + large + "'", "bytes", "at most 100000"});
  refuse({.images = {}, .videos = {missing}}, ErrorCode::kNotFound, {"--video: '" + missing + "' cannot be read", "folders"});
  refuse({.images = {}, .videos = {folder}}, ErrorCode::kInvalidArgument, {"--video", folder, "holds no files"});
}

TEST_F(MediaFiles, OnlyFilesAreRead) {
  const std::string pipe = folder_.path() / "pipe", frame = draw("frame.png", 1);
  ASSERT_EQ(0, ::mkfifo(pipe.c_str(), 0600));
  for (const std::string& path : {pipe, std::string("/dev/zero"), std::string("/dev/tty")}) {
    refuse({.images = {path}}, ErrorCode::kNotFound, {"--image: '" + path + "' cannot be read"});
    refuse({.images = {}, .videos = {frame, path}}, ErrorCode::kNotFound, {"--video: '" + path + "' cannot be read"});
  }
}

TEST_F(MediaFiles, AFrameIsNamedByItsOwnFile) {
  const std::string first = draw("video/0.png", 1), text = write("text.png", "no picture");
  const std::string small = write("video/1.png", test::png_of(drawn_picture(64, 64, 2)));
  const std::string folder = folder_.path() / "video";
  const auto refuse_video = [&](const std::vector<std::string>& paths, const std::vector<std::string>& parts) {
    refuse({.images = {}, .videos = paths}, ErrorCode::kInvalidArgument, parts);
  };
  refuse_video({folder}, {"--video '" + folder + "', '1.png': it has 64 x 64 pixels", "128 x 128 as", "'0.png'"});
  refuse_video({first, small}, {"--video '" + small + "': it has 64 x 64 pixels", "as --video '" + first + "'"});
  refuse_video({first, text}, {"--video '" + text + "'", "no known type"});
  refuse_video({first}, {"--video '" + first + "' is a single file", "two or more"});
}

TEST_F(MediaFiles, NoneAreNone) { EXPECT_TRUE(read({}).empty()); }

}  // namespace
}  // namespace ferry
