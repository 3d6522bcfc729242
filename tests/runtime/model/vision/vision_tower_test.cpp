#include "runtime/model/vision/vision_tower.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/backend.h"
#include "tests/runtime/vision/drawn_picture.h"
#include "tests/support/apart_device.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"

// The tower against Hugging Face transformers: tests/golden/README.md says what the data is.

namespace ferry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::all_close;
using test::expect_error;

constexpr double kTolerance = 5e-6;     // of the largest magnitude, f32: sums in another order
constexpr double kBf16Deviation = 1.5;  // x transformers' own distance between bf16 and f32

/// A checkpoint's tower in memory.
struct Loaded {
  Loaded(const fs::path& dir, DType run_dtype, const char* kernels, VisionTower::Limits limits = {.max_patches = 256})
      : dtype(run_dtype),
        config(load_vision_config(dir).value()),
        backend(select_backend(kernels, "auto", run_dtype)),
        weights(load_vision(Checkpoint::open(dir), config.plan, backend, pool, run_dtype, true)),
        tower(config.plan, weights, stream, run_dtype, limits) {}

  Matrix run(const std::vector<float>& patches, const std::vector<Grid>& grids, const VisionTower::BlockTap& tap = {}) {
    const int64_t cols = config.plan.patch_cols(), rows = std::ssize(patches) / cols;
    Matrix out(dtype, rows / config.plan.merged_patches(), config.plan.out_hidden_dim);
    const auto* data = reinterpret_cast<const std::byte*>(patches.data());
    tower.forward({data, DType::kF32, rows, cols, cols}, grids, out.view(), tap);
    return out;
  }

  ThreadPool pool{2};
  DType dtype;
  VisionConfig config;
  Backend backend;
  Stream stream{backend, pool};
  VisionWeights weights;
  VisionTower tower;
};

std::vector<float> read_tensor(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* tensor = file.find(name);
  if (tensor == nullptr) {
    ADD_FAILURE() << file.path() << " has no " << name;
    return {};
  }
  std::vector<float> values(static_cast<std::size_t>(tensor->bytes) / sizeof(float));
  std::memcpy(values.data(), tensor->data, values.size() * sizeof(float));
  return values;
}

std::vector<float> values_of(ConstMatrixView view) {
  std::vector<float> values;
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c) {
      values.push_back(visit_dtype(view.dtype, [&]<class T>() { return to_float(view.row<T>(r)[c]); }));
    }
  }
  return values;
}

void expect_close(const std::vector<float>& expected, ConstMatrixView actual, const std::string& what) {
  float largest = 0;
  for (const float x : expected) largest = std::max(largest, std::abs(x));
  const std::vector<float> values = values_of(actual);
  ASSERT_EQ(expected.size(), values.size()) << what;
  EXPECT_TRUE(all_close(values, expected, {.absolute = kTolerance * largest})) << what;
}

Grid grid_of(const json& value) { return {.t = value[0], .h = value[1], .w = value[2]}; }

/// A set of goldens and the model they are of.
struct Golden {
  const char* folder;
  const char* cases;  // key of golden.json
  fs::path checkpoint, pictures;

  fs::path path() const { return test::golden_folder(folder); }
};

const std::vector<Golden>& goldens() {
  static const fs::path demo = test::source_folder() / "launch" / "demo";
  static const std::vector<Golden> all{
      {"qwen3_5_vl", "vision", test::golden_folder("qwen3_5_vl"), test::golden_folder("qwen3_5_vl")},
      {"qwen3_5_moe", "vision", test::golden_folder("qwen3_5_moe"), ""},
      {"qwen3_5_moe_wide", "vision", test::golden_folder("qwen3_5_moe_wide"), ""},
      {"demo_vision", "cases", demo, demo / "pictures"}};
  return all;
}

/// A picture or a video of a golden and its patches: from its file, or from the golden itself where files are left out.
struct Input {
  std::string name;
  Patches patches;
};

Patches read_patches(const Golden& golden, const json& c, const std::string& name, const VisionConfig& config) {
  if (golden.pictures.empty()) {
    const SafetensorsFile tensors(golden.path() / "golden.safetensors");
    return {.grid = grid_of(c["grid_thw"]), .values = read_tensor(tensors, name + ".pixel_values")};
  }
  if (c.contains("image")) {
    return make_patches(test::read_picture(golden.pictures / c["image"].get<std::string>()), config.pictures);
  }
  std::vector<Picture> frames;
  for (const json& frame : c["video"]) frames.push_back(test::read_picture(golden.path() / frame.get<std::string>()));
  return make_video_patches(frames, config.pictures);
}

std::vector<Input> inputs_of(const Golden& golden, const VisionConfig& config) {
  std::vector<Input> inputs;
  int image = 0;
  const json file = test::read_golden(golden.path() / "golden.json");
  for (const json& c : file[golden.cases]) {
    if (c.contains("images")) continue;
    const std::string name = c.contains("video") ? "video" : "image" + std::to_string(image++);
    inputs.push_back({name, read_patches(golden, c, name, config)});
    EXPECT_EQ(grid_of(c["grid_thw"]), inputs.back().patches.grid) << golden.folder << " " << name;
  }
  EXPECT_EQ(4U, inputs.size());
  return inputs;
}

TEST(VisionTower, EqualsTransformersInF32) {
  for (const Golden& golden : goldens()) {
    const SafetensorsFile tensors(golden.path() / "golden.safetensors");
    for (const char* kernels : {"auto", "ref"}) {
      Loaded model(golden.checkpoint, DType::kF32, kernels);
      for (const Input& input : inputs_of(golden, model.config)) {
        const Matrix merged = model.run(input.patches.values, {input.patches.grid});
        expect_close(read_tensor(tensors, input.name + ".merged"), merged.view(),
                     std::string(golden.folder) + " " + input.name + " " + kernels);
      }
    }
  }
}

TEST(VisionTower, EveryBlockEqualsTransformers) {
  const Golden& demo = goldens().back();
  const SafetensorsFile tensors(demo.path() / "golden.safetensors");
  Loaded model(demo.checkpoint, DType::kF32, "auto");
  const Input picture = inputs_of(demo, model.config).front();
  int64_t num_blocks = 0;
  model.run(picture.patches.values, {picture.patches.grid}, [&](int64_t block, ConstMatrixView hidden) {
    expect_close(read_tensor(tensors, "image0.block" + std::to_string(block)), hidden, "block " + std::to_string(block));
    ++num_blocks;
  });
  EXPECT_EQ(model.config.plan.depth, num_blocks);
}

/// Root of the mean squared difference.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

TEST(VisionTower, InBf16IsAsCloseAsTransformers) {
  for (const Golden& golden : {goldens().front(), goldens().back()}) {
    const SafetensorsFile f32(golden.path() / "golden.safetensors"), bf16(golden.path() / "golden_bf16.safetensors");
    for (const OpTable* table : available_op_tables()) {
      Loaded model(golden.checkpoint, DType::kBF16, table->name);
      for (const Input& input : inputs_of(golden, model.config)) {
        if (input.name == "video") continue;
        const std::vector<float> exact = read_tensor(f32, input.name + ".merged");
        const double allowed = kBf16Deviation * distance(exact, read_tensor(bf16, input.name + ".merged_bf16"));
        const double actual = distance(exact, values_of(model.run(input.patches.values, {input.patches.grid}).view()));
        EXPECT_LE(actual, allowed) << golden.folder << " " << input.name << " " << table->name;
        EXPECT_GT(actual, 0.01 * allowed) << "computed in more than bf16?";
      }
    }
  }
}

// All pictures of a golden and its video in one call, and with buffers that hold one step of the largest.
TEST(VisionTower, PicturesDoNotDependOnTheirBatch) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Golden& golden = goldens().front();
    Loaded wide(golden.checkpoint, dtype, "auto"), narrow(golden.checkpoint, dtype, "auto", {.max_patches = 96});
    std::vector<float> patches;
    std::vector<Grid> grids;
    int64_t first = 0;
    const std::vector<Input> inputs = inputs_of(golden, wide.config);
    for (const Input& input : inputs) {
      patches.insert(patches.end(), input.patches.values.begin(), input.patches.values.end());
      grids.push_back(input.patches.grid);
    }
    const Matrix together = wide.run(patches, grids), in_pieces = narrow.run(patches, grids);
    EXPECT_TRUE(all_close(in_pieces.view(), together.view(), test::kExact));
    for (const Input& input : inputs) {
      const Matrix alone = wide.run(input.patches.values, {input.patches.grid});
      EXPECT_TRUE(all_close(alone.view(), together.view().rows_from(first, alone.rows()), test::kExact)) << input.name;
      first += alone.rows();
    }
  }
}

TEST(VisionTower, OnADeviceThatTheHostCannotTouchGivesTheSameBits) {
  const Golden& golden = goldens().front();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Loaded host(golden.checkpoint, dtype, "auto");
    test::ApartDevice device(dtype);
    test::ApartStream stream(device, host.pool);
    const VisionWeights weights =
        load_vision(Checkpoint::open(golden.checkpoint), host.config.plan, device.backend(), host.pool, dtype, true);
    VisionTower tower(host.config.plan, weights, stream, dtype, {.max_patches = 256});
    for (const Input& input : inputs_of(golden, host.config)) {
      const Matrix expected = host.run(input.patches.values, {input.patches.grid});
      Matrix out(stream.memory(), dtype, expected.rows(), expected.cols());
      const int64_t cols = host.config.plan.patch_cols(), rows = std::ssize(input.patches.values) / cols;
      tower.forward({reinterpret_cast<const std::byte*>(input.patches.values.data()), DType::kF32, rows, cols, cols},
                    {&input.patches.grid, 1}, out.view());
      HostRows look(stream, dtype, out.rows(), out.cols());
      look.fetch(out.view());
      EXPECT_TRUE(all_close(look.look(), expected.view(), test::kExact)) << input.name;
    }
  }
}

TEST(VisionTower, GridsMustFit) {
  const Loaded model(goldens().front().checkpoint, DType::kF32, "auto", {.max_patches = 96});
  const auto refused = [&](const Grid& grid, const std::vector<std::string>& parts) {
    expect_error([&] { model.tower.check_grid(grid); }, ErrorCode::kInvalidArgument, parts);
  };
  model.tower.check_grid({.t = 1000, .h = 8, .w = 12});
  refused({.t = 1, .h = 8, .w = 14}, {"1 x 8 x 14", "at most 96"});
  refused({.t = 1, .h = int64_t{1} << 40, .w = int64_t{1} << 40}, {"at most 96"});
  refused({.t = 1, .h = 3, .w = 4}, {"1 x 3 x 4", "multiples of 2"});
  refused({.t = 0, .h = 4, .w = 4}, {"0 x 4 x 4"});
}

}  // namespace
}  // namespace ferry
