#include "runtime/vision/picture.h"

#include <gtest/gtest.h>

#include <cstring>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/vision/exif.h"
#include "tests/runtime/vision/drawn_picture.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using test::bytes_of;
using test::expect_error;
using test::read_file;

const std::filesystem::path kGolden = test::golden_folder("vision");

/// 32-bit number, highest byte first.
std::string big(uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xff);
  return text;
}

void expect_refused(const std::string& file, const std::vector<std::string>& parts, const PictureLimits& limits = {}) {
  expect_error([&] { decode_picture(bytes_of(file), limits, "picture 7"); }, ErrorCode::kInvalidArgument, parts);
}

TEST(Picture, IsWhatPillowMakesOfIt) {
  const SafetensorsFile expected(kGolden / "expected.safetensors");
  ASSERT_GE(expected.tensors().size(), 25U);
  for (const TensorInfo& tensor : expected.tensors()) {
    const Picture picture = test::read_picture(kGolden / tensor.name);
    ASSERT_EQ((std::vector<int64_t>{picture.height, picture.width, 3}), tensor.shape) << tensor.name;
    EXPECT_EQ(0, std::memcmp(picture.rgb.data(), tensor.data, picture.rgb.size())) << tensor.name;
  }
}

TEST(Picture, EveryTruncationIsRefused) {
  for (const char* name : {"rgb.png", "baseline.jpg", "progressive.jpg", "lossy.webp", "moving.webp", "inside.gif"}) {
    const std::string file = read_file(kGolden / name);
    // The last bytes of PNG (its end chunk), of JPEG and GIF (their end marks) and of a moving WebP (its last frame) are not
    // read.
    const std::size_t needed = file.size() - (std::string_view(name) == "moving.webp" ? file.size() / 2 : 20);
    for (std::size_t size = 0; size < needed; size += 7) expect_refused(file.substr(0, size), {"picture 7: ", "; allowed: "});
  }
}

TEST(Picture, OtherTypesAreRefused) {
  expect_refused("", {"picture 7", "empty", "PNG"});
  expect_refused("<svg xmlns='http://www.w3.org/2000/svg'/>", {"41 bytes", "no known type", "PNG, JPEG, WebP, GIF"});
  expect_refused(std::string("RIFF\x20\0\0\0WAVEfmt ", 16), {"no known type"});
}

TEST(Picture, LimitsAreCheckedBeforeAnythingIsAllocated) {
  const std::string file = read_file(kGolden / "rgb.png");
  expect_refused(file, {"more than 100 bytes", "at most 100", "--picture-bytes"}, {.max_bytes = 100, .max_pixels = 1000});
  for (const char* name : {"rgb.png", "baseline.jpg", "lossy.webp", "moving.webp", "interlaced.gif"}) {
    expect_refused(read_file(kGolden / name), {"26 x 19 pixels", "1 to 493 together"},
                   {.max_bytes = 1 << 20, .max_pixels = 493});
    EXPECT_EQ(26, decode_picture(bytes_of(read_file(kGolden / name)), {.max_bytes = 1 << 20, .max_pixels = 494}).width);
  }
  std::string bomb = file;
  bomb.replace(16, 8, big(0x7fffffff) + big(0x7fffffff));
  expect_refused(bomb, {"2147483647 x 2147483647 pixels"});
  bomb.replace(16, 8, big(0) + big(5));
  expect_refused(bomb, {"0 x 5 pixels", "allowed: 1"});
}

TEST(Picture, DamagedFilesNameTheirType) {
  for (const auto& [name, type] :
       {std::pair{"rgb.png", "PNG"}, {"baseline.jpg", "JPEG"}, {"alpha.webp", "WebP"}, {"interlaced.gif", "GIF"}}) {
    const std::string file = read_file(kGolden / name);
    expect_refused(file.substr(0, file.size() / 2), {type, std::to_string(file.size() / 2) + " bytes", "undamaged"});
  }
  std::string wrong_sum = read_file(kGolden / "rgb.png");
  wrong_sum[30] = static_cast<char>(wrong_sum[30] + 1);
  expect_refused(wrong_sum, {"PNG", "CRC"});
}

// A frame of a moving WebP, or of a GIF, that says it is larger than what it has.
TEST(Picture, FramesThatLieAreRefused) {
  std::string gif = read_file(kGolden / "inside.gif");
  const std::size_t frame = gif.find(std::string(",\2\0\3\0", 5));
  ASSERT_NE(frame, std::string::npos);
  gif.replace(frame + 5, 4, "\xff\xff\xff\xff");
  expect_refused(gif, {"65535 x 65535 pixels"});
  gif.replace(frame + 5, 4, std::string("\0\0\1\0", 4));
  expect_refused(gif, {"0 x 1 pixels"});
  std::string webp = read_file(kGolden / "moving.webp");
  const std::size_t first = webp.find("ANMF");
  ASSERT_NE(first, std::string::npos);
  webp[first + 8] = 5;  // offset of 10 columns
  expect_refused(webp, {"WebP"});
}

TEST(Picture, ManyScansAreRefused) {
  // A progressive picture's scans are repeated: refinement of nothing costs a pass each and a few bytes.
  std::string file = read_file(kGolden / "progressive.jpg");
  const std::size_t first = file.find("\xff\xda"), second = file.find("\xff\xda", first + 2);
  ASSERT_NE(second, std::string::npos);
  const std::string scan = file.substr(first, second - first);
  std::string many = file.substr(0, second);
  for (int i = 0; i < 200; ++i) many += scan;
  expect_refused(many + file.substr(second), {"JPEG", "more than 100 scans"});
}

/// A JPEG segment: its mark, its length and `data`.
std::string segment(uint8_t mark, const std::string& data) {
  return std::string("\xff") + static_cast<char>(mark) + big(static_cast<uint32_t>(data.size() + 2)).substr(2) + data;
}

TEST(Picture, ScansOfLargeArithmeticFilesAreFewer) {
  // Grey, 4608 x 4608; arithmetic codes go on for ever where the file has nothing, so a scan is its header.
  const std::string size = big(4608).substr(2);
  std::string file("\xff\xd8", 2);
  file += segment(0xdb, std::string(1, 0) + std::string(64, 1));
  file += segment(0xca, "\x08" + size + size + std::string("\x01\x01\x11\0", 4));
  for (int scan = 0; scan < 16; ++scan) file += segment(0xda, std::string(scan == 0 ? "\1\1\0\0\0\0" : "\1\1\0\1\x3f\0", 6));
  expect_refused(file + "\xff\xd9", {"JPEG", "more than 12 scans"});
}

TEST(Picture, CoefficientsAreBounded) {
  std::string file = read_file(kGolden / "progressive.jpg");
  const std::size_t header = file.find("\xff\xc2");
  ASSERT_NE(header, std::string::npos);
  file.replace(header + 5, 4, big(6000 << 16 | 6000));
  for (std::size_t component = 0; component < 3; ++component) file[header + 11 + 3 * component] = 0x11;  // none subsampled
  const std::string num_bytes = std::to_string(3 * 6000 * 6000 * 2);
  expect_refused(file, {"several scans", num_bytes, "at most " + std::to_string((3 * 64 + 1) << 20)});
}

TEST(Picture, WhatCheckInThrowsEndsTheDecoding) {
  for (const char* name : {"rgb.png", "baseline.jpg", "progressive.jpg", "cmyk.jpg", "interlaced.gif"}) {
    const std::string file = read_file(kGolden / name);
    for (const int num_calls : {0, 9}) {
      int count = 0;
      const auto check_in = [&] {
        if (count++ == num_calls) throw Error(ErrorCode::kCancelled, "the caller left");
      };
      expect_error([&] { decode_picture(bytes_of(file), {}, name, check_in); }, ErrorCode::kCancelled, {"the caller left"});
      EXPECT_EQ(num_calls + 1, count) << name;
    }
  }
}

TEST(Exif, DamagedBlocksMeanUpright) {
  const auto orientation = [](const std::string& text) { return read_orientation(bytes_of(text)); };
  const std::string header("II\x2a\0\x8\0\0\0", 8), entry("\x12\x01\x03\0\x01\0\0\0\x06\0\0\0", 12), one("\1\0", 2);
  EXPECT_EQ(6, orientation(header + one + entry));
  EXPECT_EQ(1, orientation(header + one + entry.substr(0, 11)));
  EXPECT_EQ(1, orientation(header + std::string("\xff\xff", 2)));
  EXPECT_EQ(1, orientation(header.substr(0, 4) + "\xff\xff\xff\xff"));
  EXPECT_EQ(1, orientation(header));
  EXPECT_EQ(1, orientation("II"));
  EXPECT_EQ(1, orientation("XX" + header.substr(2) + one + entry));
  for (const char bad : {'\0', '\x09'}) {
    std::string wrong = entry;
    wrong[8] = bad;
    EXPECT_EQ(1, orientation(header + one + wrong));
  }
}

TEST(Exif, UprightUndoesEveryOrientation) {
  const Picture picture = test::drawn_picture(3, 5);
  const auto pixel = [](const Picture& p, int64_t x, int64_t y) { return p.row(y)[3 * x]; };
  // Where the upper left pixel of the stored picture comes to lie.
  struct Corner {
    int orientation;
    int64_t x, y;
  };
  for (const Corner c : {Corner{1, 0, 0}, {2, 4, 0}, {3, 4, 2}, {4, 0, 2}, {5, 0, 0}, {6, 2, 0}, {7, 2, 4}, {8, 0, 4}}) {
    const Picture upright = make_upright(picture, c.orientation);
    EXPECT_EQ(c.orientation >= 5 ? 3 : 5, upright.width);
    EXPECT_EQ(pixel(picture, 0, 0), pixel(upright, c.x, c.y)) << c.orientation;
  }
}

}  // namespace
}  // namespace ferry
