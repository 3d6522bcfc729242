#include "runtime/vision/placeholders.h"

#include <gtest/gtest.h>

#include <cstring>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/vision/preprocess.h"
#include "tests/runtime/vision/drawn_picture.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using nlohmann::json;
using test::expect_error;
using Ids = std::vector<TokenId>;

constexpr VisionTokens kTokens{.image = 90, .video = 91, .vision_start = 80, .vision_end = 81};

VisionTokens tokens_of(const json& config) {
  return {.image = config["image_token_id"],
          .video = config["video_token_id"],
          .vision_start = config["vision_start_token_id"],
          .vision_end = config["vision_end_token_id"]};
}

Grid grid_of(const json& value) { return {.t = value[0], .h = value[1], .w = value[2]}; }

std::vector<Grid> grids_of(const json& value) {
  std::vector<Grid> grids;
  for (const json& grid : value[0].is_array() ? value : json::array({value})) grids.push_back(grid_of(grid));
  return grids;
}

void expect_positions(const SafetensorsFile& golden, const std::string& name, const MropePositions& actual) {
  const TensorInfo* tensor = golden.find(name);
  ASSERT_NE(tensor, nullptr) << name;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::vector<int32_t>& positions = actual.axes[axis];
    ASSERT_EQ(std::ssize(positions), tensor->shape[1]) << name;
    const std::size_t bytes = positions.size() * sizeof(int32_t);
    EXPECT_EQ(0, std::memcmp(positions.data(), tensor->data + axis * bytes, bytes)) << name << ", axis " << axis;
  }
}

TEST(MropePositions, AreThoseOfTheGoldens) {
  int num_compared = 0;
  for (const char* folder : {"qwen3_5_vl", "qwen3_5_moe", "qwen3_5_moe_wide", "demo_vision"}) {
    const bool is_demo = std::string_view(folder) == "demo_vision";
    const json golden = test::read_golden(test::golden_folder(folder) / "golden.json");
    const json config =
        test::read_golden((is_demo ? test::source_folder() / "launch" / "demo" : test::golden_folder(folder)) / "config.json");
    const SafetensorsFile tensors(test::golden_folder(folder) / "golden.safetensors");
    int image = 0;
    for (const json& c : golden[is_demo ? "cases" : "vision"]) {
      if (!c.contains("rope_delta")) continue;
      const bool is_video = c.contains("video");
      const std::vector<Grid> grids = grids_of(c["grid_thw"]), none;
      const MropePositions actual =
          mrope_positions(c["ids"].get<Ids>(), tokens_of(config), is_video ? none : grids, is_video ? grids : none, 2);
      EXPECT_EQ(c["rope_delta"], actual.delta) << folder;
      const std::string name = is_video ? "video" : c.contains("images") ? "two_images" : "image" + std::to_string(image++);
      expect_positions(tensors, name + ".position_ids", actual);
      ++num_compared;
    }
  }
  EXPECT_EQ(14, num_compared);
}

TEST(MropePositions, AdjacentPicturesAreToldApartByTheirGrids) {
  const std::vector<Grid> grids{{1, 2, 4}, {1, 4, 2}};
  const MropePositions p = mrope_positions(Ids{5, 90, 90, 90, 90, 6}, kTokens, grids, {}, 2);
  EXPECT_EQ((std::vector<int32_t>{0, 1, 1, 3, 3, 5}), p.axes[0]);
  EXPECT_EQ((std::vector<int32_t>{0, 1, 1, 3, 4, 5}), p.axes[1]);
  EXPECT_EQ((std::vector<int32_t>{0, 1, 2, 3, 3, 5}), p.axes[2]);
  EXPECT_EQ(0, p.delta);
}

TEST(MropePositions, OfTextCountUp) {
  const MropePositions p = mrope_positions(Ids{1, 2, 3}, kTokens, {}, {}, 2);
  for (const std::vector<int32_t>& axis : p.axes) EXPECT_EQ((std::vector<int32_t>{0, 1, 2}), axis);
  EXPECT_EQ(0, p.delta);
  EXPECT_EQ(0, mrope_positions({}, kTokens, {}, {}, 2).delta);
}

TEST(MropePositions, PlacesAndGridsMustAgree) {
  const std::vector<Grid> one{{1, 4, 4}}, video{{2, 2, 2}};
  const auto refused = [&](const Ids& ids, std::span<const Grid> images, std::span<const Grid> videos,
                           const std::vector<std::string>& parts) {
    expect_error([&] { mrope_positions(ids, kTokens, images, videos, 2); }, ErrorCode::kInvalidArgument, parts);
  };
  refused({1, 90, 90, 90, 2}, one, {}, {"picture 1", "3 tokens at token 1", "allowed: 4"});
  refused({90, 90, 1, 90, 90}, one, {}, {"picture 1", "2 tokens"});
  refused({90, 90, 90, 90, 90}, one, {}, {"token 4", "picture 2", "at most 1"});
  refused({1, 2}, one, {}, {"no place", "picture 1"});
  refused({91, 1}, {}, video, {"no place", "step 2 of video 1"});
  refused({91, 1}, {}, {}, {"token 0", "video 1", "at most 0"});
}

TEST(ExpandPlaceholders, RepeatsAPicturesIdForEachMergedPatch) {
  const std::vector<Grid> images{{1, 4, 6}, {1, 2, 2}};
  const Ids ids = expand_placeholders(Ids{7, 80, 90, 81, 90, 8}, kTokens, {.images = images}, {});
  EXPECT_EQ((Ids{7, 80, 90, 90, 90, 90, 90, 90, 81, 90, 8}), ids);
}

TEST(ExpandPlaceholders, GivesAVideosStepsTheirTimes) {
  const auto tokenize = [](std::string_view text) { return Ids(text.begin(), text.end()); };
  const std::vector<VideoSteps> videos{{.grid = {2, 2, 4}, .times = {0.25, 11.35}}};
  Ids expected{7};
  for (const char* text : {"<0.2 seconds>", "<11.3 seconds>"}) {  // 11.35 lies below its decimal
    for (const char* c = text; *c != '\0'; ++c) expected.push_back(*c);
    for (const TokenId id : {80, 91, 91, 81}) expected.push_back(id);
  }
  expected.push_back(8);
  EXPECT_EQ(expected, expand_placeholders(Ids{7, 80, 91, 81, 8}, kTokens, {.videos = videos}, tokenize));
  EXPECT_EQ(expected, expand_placeholders(Ids{7, 91, 8}, kTokens, {.videos = videos}, tokenize));
}

// The demo's prompt with a video: time stamps are its only text that is not in the prompt.
TEST(ExpandPlaceholders, OfAVideoIsTheGoldens) {
  const json golden = test::read_golden(test::golden_folder("demo_vision") / "golden.json")["cases"].back();
  const VisionTokens tokens = tokens_of(test::read_golden(test::source_folder() / "launch" / "demo" / "config.json"));
  const std::vector<int64_t> frames{0, 12, 24, 36};
  const std::vector<VideoSteps> videos{{.grid = grid_of(golden["grid_thw"]), .times = step_times(frames, 24.0, 2)}};
  const Ids expected = golden["ids"].get<Ids>();
  Ids prompt(expected.begin(), expected.begin() + 3);
  for (const TokenId id : {tokens.vision_start, tokens.video, tokens.vision_end}) prompt.push_back(id);
  prompt.insert(prompt.end(), expected.begin() + 51, expected.end());
  const auto tokenize = [](std::string_view text) {
    EXPECT_TRUE(text == "<0.2 seconds>" || text == "<1.2 seconds>") << text;
    return Ids{27, text[1] == '0' ? 15 : 16, 13, 17, 3955, 29};
  };
  EXPECT_EQ(expected, expand_placeholders(prompt, tokens, {.videos = videos}, tokenize));
}

TEST(ExpandPlaceholders, AsManyPlacesAsPictures) {
  const std::vector<Grid> images{{1, 2, 2}};
  const auto refused = [&](const Ids& ids, const std::vector<std::string>& parts) {
    expect_error([&] { expand_placeholders(ids, kTokens, {.images = images}, {}); }, ErrorCode::kInvalidArgument, parts);
  };
  refused({1, 2}, {"0 places for pictures", "allowed: 1"});
  refused({90, 1, 90}, {"2 places for pictures", "allowed: 1"});
  refused({90, 91}, {"1 places for videos", "allowed: 0"});
}

}  // namespace
}  // namespace ferry
