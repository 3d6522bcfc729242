#include "runtime/model/vision/vision_plan.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "runtime/model/vision/patch_positions.h"
#include "runtime/model/vision/vision_weights.h"
#include "tests/runtime/vision/drawn_picture.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::expect_error;

json config_of(const char* golden) { return test::read_golden(test::golden_folder(golden) / "config.json"); }

/// What is read of a folder with these files.
std::optional<VisionConfig> load(const std::vector<std::pair<std::string, json>>& files) {
  const test::TempFolder folder;
  for (const auto& [name, content] : files) std::ofstream(folder.path() / name) << content.dump();
  return load_vision_config(folder.path());
}

TEST(VisionConfig, IsReadWithThePublishedDefaults) {
  const VisionConfig config = load({{"config.json", config_of("qwen3_5_moe")}}).value();
  EXPECT_EQ(3, config.plan.depth);
  EXPECT_EQ(12, config.plan.head_dim());
  EXPECT_EQ(1536, config.plan.patch_cols());
  EXPECT_EQ(6, config.plan.position_side);
  EXPECT_EQ(10000.0, config.plan.rope_theta);
  EXPECT_EQ(508, config.tokens.image);
  EXPECT_EQ(506, config.tokens.vision_start);
  EXPECT_EQ(65536, config.pictures.min_pixels);
  EXPECT_EQ(16777216, config.pictures.max_pixels);
  EXPECT_EQ(4096, config.videos.frames.min_pixels);
  EXPECT_EQ(25165824, config.videos.frames.max_pixels);
  EXPECT_EQ(768, config.videos.max_frames);
}

// Released files have an empty list of deepstack layers, no rope_parameters and the whole model's type.
TEST(VisionConfig, OfReleasedFilesIsTheSame) {
  json config = config_of("qwen3_5_moe");
  json& vision = config["vision_config"];
  vision["deepstack_visual_indexes"] = json::array();
  vision["model_type"] = "qwen3_5_moe";
  vision.erase("rope_parameters");
  EXPECT_EQ(10000.0, load({{"config.json", config}}).value().plan.rope_theta);
}

TEST(VisionConfig, ProcessorsAreReadFromEitherFile) {
  const json config = config_of("qwen3_5_moe");
  const json picture = {{"size", {{"shortest_edge", 1024}, {"longest_edge", 4096}}}, {"image_mean", {0.1, 0.2, 0.3}}};
  const json video = {{"size", {{"shortest_edge", 2048}, {"longest_edge", 8192}}}, {"fps", 1.5}, {"max_frames", 9}};
  const auto expect_read = [](const VisionConfig& read) {
    EXPECT_EQ(1024, read.pictures.min_pixels);
    EXPECT_EQ(4096, read.pictures.max_pixels);
    EXPECT_EQ(0.2F, read.pictures.mean[1]);
    EXPECT_EQ(0.5F, read.pictures.std_dev[1]);
    EXPECT_EQ(8192, read.videos.frames.max_pixels);
    EXPECT_EQ(1.5, read.videos.fps);
    EXPECT_EQ(9, read.videos.max_frames);
  };
  expect_read(load({{"config.json", config}, {"preprocessor_config.json", picture}, {"video_preprocessor_config.json", video}})
                  .value());
  const json both = {{"image_processor", picture}, {"video_processor", video}};
  expect_read(load({{"config.json", config}, {"processor_config.json", both}}).value());
}

TEST(VisionConfig, IsAbsentWithoutATower) {
  json config = config_of("qwen3_5_moe");
  config["language_model_only"] = true;
  EXPECT_FALSE(load({{"config.json", config}}).has_value());
  config.erase("vision_config");
  config.erase("language_model_only");
  EXPECT_FALSE(load({{"config.json", config}}).has_value());
}

TEST(VisionConfig, WhatIsNotSupportedIsRefused) {
  const auto refused = [](const char* key, const json& value, const std::vector<std::string>& parts) {
    json config = config_of("qwen3_5_moe");
    config["vision_config"][key] = value;
    expect_error([&] { load({{"config.json", config}}); }, ErrorCode::kInvalidArgument, parts);
  };
  refused("deepstack_visual_indexes", {5, 11}, {"vision_config", "deepstack_visual_indexes", "[5,11]", "allowed: []"});
  refused("hidden_act", "relu", {"hidden_act", "gelu_pytorch_tanh"});
  refused("num_heads", 5, {"num_heads is 5", "divisor of hidden_size 48"});
  refused("num_heads", 24, {"num_heads is 24", "multiple of 4"});
  refused("depth", 0, {"depth is 0", "1 to 1024"});
  refused("out_hidden_size", 65, {"out_hidden_size is 65", "64"});
  refused("num_position_embeddings", 35, {"num_position_embeddings is 35", "square"});
  refused("model_type", "qwen3_vl", {"model_type", "qwen3_5_vision"});
  refused("rope_parameters", {{"rope_type", "yarn"}}, {"rope_type", "axial"});
  refused("rope_parameters", {{"rope_theta", -1}}, {"rope_theta", "above 0"});
  refused("patch_size", {14, 16}, {"patch_size", "[14,16]"});
}

TEST(VisionConfig, ProcessorsThatDisagreeAreRefused) {
  const auto refused = [](const json& processor, const std::vector<std::string>& parts) {
    expect_error(
        [&] {
          load({{"config.json", config_of("qwen3_5_moe")}, {"preprocessor_config.json", processor}});
        },
        ErrorCode::kInvalidArgument, parts);
  };
  refused({{"patch_size", 14}}, {"preprocessor_config.json", "patch_size is 14", "16"});
  refused({{"resample", 2}}, {"resample is 2", "3"});
  refused({{"do_resize", false}}, {"do_resize", "true"});
  refused({{"image_std", {0.5, 0, 0.5}}}, {"image_std", "three numbers above 0"});
  refused({{"image_mean", {0.5, 0.5}}}, {"image_mean", "three numbers"});
  refused({{"size", {{"shortest_edge", 4096}, {"longest_edge", 1024}}}}, {"at least 4096", "at most 1024", "longest_edge"});
  refused({{"rescale_factor", 0}}, {"rescale_factor", "above 0"});
}

TEST(VisionWeights, TensorsMustBeThoseOfThePlan) {
  const fs::path dir = test::golden_folder("qwen3_5_vl");
  const VisionPlan plan = load_vision_config(dir).value().plan;
  const Checkpoint checkpoint = Checkpoint::open(dir);
  const Backend backend = select_backend("ref", "ref", DType::kF32);
  const auto refused = [&](const std::function<void(VisionPlan&)>& change, const std::vector<std::string>& parts) {
    VisionPlan changed = plan;
    change(changed);
    ThreadPool pool(1);
    expect_error([&] { load_vision(checkpoint, changed, backend, pool, DType::kF32); }, ErrorCode::kInvalidArgument, parts);
  };
  refused([](VisionPlan& p) { p.depth = 3; }, {"model.visual.blocks.2.norm1.weight", "missing"});
  refused([](VisionPlan& p) { p.depth = 1; }, {"model.visual.blocks.1.", "does not belong"});
  refused([](VisionPlan& p) { p.intermediate_dim = 81; },
          {"model.visual.blocks.0.mlp.linear_fc1.weight", "[80, 48]", "[81, 48]"});
  refused([](VisionPlan& p) { p.position_side = 7; }, {"model.visual.pos_embed.weight", "[36, 48]", "[49, 48]"});
  refused([](VisionPlan& p) { p.patch_size = 8; }, {"model.visual.patch_embed.proj.weight", "[48, 3, 2, 16, 16]"});
}

TEST(PatchPositions, FollowMergeBlocks) {
  const Grid grid{1, 4, 6};
  std::vector<std::pair<int64_t, int64_t>> places;
  for (const int64_t i : {0, 1, 2, 3, 4, 11, 12, 23}) {
    const PatchPlace place = patch_place(grid, 2, i);
    places.emplace_back(place.row, place.col);
  }
  EXPECT_EQ((std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 2}, {1, 5}, {2, 0}, {3, 5}}), places);
}

TEST(PatchPositions, CornersAreTheTablesCorners) {
  const Grid grid{1, 4, 8};
  for (const auto& [place, row] : {std::pair<PatchPlace, int64_t>{{0, 0}, 0}, {{0, 7}, 5}, {{3, 0}, 30}, {{3, 7}, 35}}) {
    const PositionTaps taps = position_taps(grid, place, 6);
    EXPECT_EQ(row, taps.rows[0]);
    EXPECT_EQ(1.0F, taps.weights[0]);
  }
  const PositionTaps single = position_taps({1, 1, 1}, {0, 0}, 6);  // no division by zero
  EXPECT_EQ(0, single.rows[0]);
  EXPECT_EQ(1.0F, single.weights[0]);
}

}  // namespace
}  // namespace ferry
