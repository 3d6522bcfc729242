#include "runtime/checkpoint/packed_checkpoint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "runtime/checkpoint/safetensors_writer.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

using test::expect_error;

constexpr WeightType kInt8{WeightFormat::kInt8, 0};
constexpr WeightType kInt4{WeightFormat::kInt4, 32};

class PackedMarkTest : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(dir_.path() / kPackedMark) << text; }
  void expect_refused(const std::string& text, const std::vector<std::string>& parts) {
    write(text);
    expect_error([&] { read_packed_mark(dir_.path()); }, ErrorCode::kInvalidArgument, parts);
  }

  const std::map<std::string, std::string> kFiles{{"checksums.json", "0123456789abcdef"}, {"config.json", "00000000000000ff"}};
  test::TempFolder dir_;
};

TEST_F(PackedMarkTest, RefusesEveryBitFlip) {
  write_packed_mark(dir_.path(), {parse_quantization("experts=w4a8:32,lm_head=w8a8"), kFiles});
  std::ifstream file(dir_.path() / kPackedMark, std::ios::binary);
  const std::string good{std::istreambuf_iterator<char>(file), {}};
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    write(bad);
    EXPECT_THROW(read_packed_mark(dir_.path()), Error) << "bit " << bit << " of " << bad;
  }
}

TEST_F(PackedMarkTest, RefusesFilesOutsideTheFolder) {
  write_packed_mark(dir_.path(), {parse_quantization("w8a8"), {{"checksums.json", "0"}, {"../config.json", "0"}}});
  expect_error([&] { read_packed_mark(dir_.path()); }, ErrorCode::kInvalidArgument,
               {"'../config.json'", "a file in the folder"});
}

TEST_F(PackedMarkTest, ReadsWhatItWrites) {
  EXPECT_FALSE(read_packed_mark(dir_.path()));
  for (const char* text : {"w8a8", "w4a8", "w4a8:128", "experts=w4a8:32,lm_head=w8a8"}) {
    for (const std::map<std::string, std::string>& files : {std::map<std::string, std::string>{}, kFiles}) {
      write_packed_mark(dir_.path(), {parse_quantization(text), files});
      const std::optional<PackedMark> mark = read_packed_mark(dir_.path());
      ASSERT_TRUE(mark) << text;
      EXPECT_EQ(mark->quantization, parse_quantization(text)) << text;
      EXPECT_EQ(mark->files, files);
    }
  }
  expect_error(
      [&] {
        write_packed_mark(dir_.path() / "no", {parse_quantization("w8a8"), {}});
      },
      ErrorCode::kUnavailable, {"no/ferry.json"});
}

TEST_F(PackedMarkTest, RefusesAMarkOfSomethingElse) {
  const std::string good = R"({"format":"ferry panels","version":1,"quantize":"w8a8"})";
  write(good);
  EXPECT_EQ(read_packed_mark(dir_.path())->quantization, parse_quantization("w8a8"));
  EXPECT_FALSE(read_packed_mark(dir_.path())->has_checksums()) << "of an older Ferry";
  expect_refused("", {"ferry.json"});
  expect_refused(good.substr(0, 30), {"ferry.json", "JSON"});
  expect_refused("[1]", {"ferry.json", "[1]", "an object"});
  expect_refused("{}", {"ferry.json", "no 'format'"});
  expect_refused(R"({"format":"gguf","version":1,"quantize":"w8a8"})", {"gguf", "ferry panels"});
  expect_refused(R"({"format":"ferry panels","quantize":"w8a8"})", {"no 'version'"});
  expect_refused(R"({"format":"ferry panels","version":2,"quantize":"w8a8"})", {"version is 2", "allowed: 1"});
  expect_refused(R"({"format":"ferry panels","version":"1","quantize":"w8a8"})", {"version is \"1\"", "allowed: 1"});
  expect_refused(R"({"format":"ferry panels","version":1})", {"no 'quantize'"});
  expect_refused(R"({"format":"ferry panels","version":1,"quantize":8})", {"quantize is 8"});
  expect_refused(R"({"format":"ferry panels","version":1,"quantize":"w3"})", {"ferry.json", "\"w3\"", "w8a8"});
  expect_refused(R"({"format":"ferry panels","version":1,"quantize":"none"})", {"ferry.json", "none"});
}

TEST_F(PackedMarkTest, ALoopOfLinksCannotBeOpened) {
  std::filesystem::create_symlink(kPackedMark, dir_.path() / kPackedMark);
  expect_error([&] { read_packed_mark(dir_.path()); }, ErrorCode::kNotFound, {"ferry.json", "cannot open"});
}

TEST_F(PackedMarkTest, AFolderDecidesUnlessSomethingElseIsAsked) {
  EXPECT_FALSE(plan_weights(dir_.path(), std::nullopt).quantization.any());
  EXPECT_FALSE(plan_weights(dir_.path(), parse_quantization("w8a8")).in_panels);
  EXPECT_EQ(plan_weights(dir_.path(), parse_quantization("w8a8")).quantization, parse_quantization("w8a8"));
  write_packed_mark(dir_.path(), {parse_quantization("experts=w4a8"), {}});
  for (const auto& asked : {std::optional<Quantization>{}, std::optional(parse_quantization("experts=w4a8"))}) {
    EXPECT_TRUE(plan_weights(dir_.path(), asked).in_panels);
    EXPECT_EQ(plan_weights(dir_.path(), asked).quantization, parse_quantization("experts=w4a8"));
  }
  for (const char* other : {"none", "w4a8", "experts=w4a8:64", "w8a8"}) {
    expect_error([&] { plan_weights(dir_.path(), parse_quantization(other)); }, ErrorCode::kInvalidArgument,
                 {"--quantize", std::string("'") + other + "'", "'experts=w4a8'", dir_.path().string()});
  }
}

TEST(PackedCheckpoint, NotesAndSizes) {
  EXPECT_EQ(panels_note({70, 96, kInt4, WeightUse::kPlain}), "w4a8:32 [70, 96]");
  EXPECT_EQ(panels_note({70, 96, kInt8, WeightUse::kGated}), "w8a8 [70, 96] gated");
  const PanelShape plain{70, 96, kInt8, WeightUse::kPlain}, gated{70, 96, kInt8, WeightUse::kGated};
  EXPECT_EQ(plain.num_panels(), 3);
  EXPECT_EQ(plain.panel_bytes(), 128 * 32 + 32 * 4) << "k is padded to 128";
  EXPECT_EQ(gated.num_panels(), 3) << "35 pairs by 16";
  EXPECT_EQ(gated.bytes(), 3 * gated.panel_bytes());
}

/// A file with the tensor "m.panels".
class PanelTensorTest : public testing::Test {
 protected:
  void expect_refused(const TensorToWrite& tensor, const std::string& note, const std::vector<std::string>& parts) {
    write({tensor}, note);
    expect_error([&] { check_panels(*file_->find("m.panels"), shape_); }, ErrorCode::kInvalidArgument, parts);
  }
  void write(const std::vector<TensorToWrite>& tensors, const std::string& note) {
    std::map<std::string, std::string> metadata;
    if (!note.empty()) metadata["m.panels"] = note;
    write_safetensors(dir_.path() / "model.safetensors", tensors, metadata);
    file_.emplace(dir_.path() / "model.safetensors");
  }

  test::TempFolder dir_;
  std::optional<SafetensorsFile> file_;
  PanelShape shape_{70, 96, kInt4, WeightUse::kPlain};
  std::string note_ = panels_note(shape_);
  std::vector<std::byte> data_ = std::vector<std::byte>(static_cast<std::size_t>(shape_.bytes()));
  TensorToWrite good_{"m.panels", StoredType::kU8, {shape_.num_panels(), shape_.panel_bytes()}, data_};
};

TEST_F(PanelTensorTest, MustBeWhatTheModelAsksFor) {
  write({good_}, note_);
  check_panels(*file_->find("m.panels"), shape_);
  TensorToWrite bad = good_;
  bad.dtype = StoredType::kI8;
  expect_refused(bad, note_, {"model.safetensors", "m.panels", "I8", "allowed: U8"});
  expect_refused(good_, "", {"m.panels", "not described", note_});
  expect_refused(good_, "w4a8:64 [70, 96]", {"m.panels", "'w4a8:64 [70, 96]'", "'" + note_ + "'"});
  bad = good_;
  bad.shape[0] -= 1;
  bad.data = good_.data.first(static_cast<std::size_t>(2 * shape_.panel_bytes()));
  expect_refused(bad, note_, {"m.panels", "[2, ", "[3, " + std::to_string(shape_.panel_bytes()) + "]"});
}

TEST_F(PanelTensorTest, MustBeAligned) {
  const std::vector<std::byte> odd(7);
  write({{"a", StoredType::kU8, {7}, odd}, good_}, note_);
  expect_error([&] { check_panels(*file_->find("m.panels"), shape_); }, ErrorCode::kInvalidArgument,
               {"m.panels", "7 bytes behind a multiple of 64"});
}

TEST_F(PanelTensorTest, ScalesMustBeFinite) {
  write({good_}, note_);
  check_panels_finite(*file_->find("m.panels"), shape_);
  // The group words of group 1 lie behind two groups' codes and one line of words; column 5 of panel 1.
  const uint16_t infinity = 0xFF << 8;
  const int64_t group_bytes = 32 * 32 / 2 + 64;
  const int64_t at = shape_.panel_bytes() + 2 * group_bytes - 64 + 5 * 2;
  std::memcpy(data_.data() + at, &infinity, sizeof(infinity));
  write({good_}, note_);
  expect_error([&] { check_panels_finite(*file_->find("m.panels"), shape_); }, ErrorCode::kInvalidArgument,
               {"m.panels", "panel 1, column 5", "must be finite"});
  const PanelShape int8{70, 96, kInt8, WeightUse::kPlain};
  std::vector<std::byte> data(static_cast<std::size_t>(int8.bytes()));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(data.data() + data.size() - 4, &nan, sizeof(nan));
  write({{"m.panels", StoredType::kU8, {int8.num_panels(), int8.panel_bytes()}, data}}, panels_note(int8));
  expect_error([&] { check_panels_finite(*file_->find("m.panels"), int8); }, ErrorCode::kInvalidArgument,
               {"m.panels", "panel 2, column 31"});
}

}  // namespace
}  // namespace ferry
