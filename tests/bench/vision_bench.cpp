#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/op_table.h"
#include "runtime/base/error.h"
#include "runtime/model/vision/vision_tower.h"
#include "tests/bench/bench.h"

// The vision tower of the Qwen3.5 models from 9B on, random weights, a picture of 1024 x 1024 pixels; and attention of its
// patches alone. Bytes are each weight read once and each row of what attention reads and writes; operations are the
// products.

namespace {

using ferry::ConstMatrixView;
using ferry::DType;
using ferry::Grid;
using ferry::LinearWeights;
using ferry::Matmul;
using ferry::Matrix;
using ferry::OpTable;
using ferry::VisionBlockWeights;
using ferry::VisionPlan;
using ferry::VisionTower;
using ferry::VisionWeights;
using ferry::bench::Bench;
using ferry::bench::Work;

constexpr VisionPlan kRealPlan{.depth = 27,
                               .hidden_dim = 1152,
                               .intermediate_dim = 4304,
                               .num_heads = 16,
                               .patch_size = 16,
                               .temporal_patch_size = 2,
                               .merge_size = 2,
                               .position_side = 48,
                               .out_hidden_dim = 2048,
                               .rope_theta = 10000.0};
constexpr VisionPlan kQuickPlan{.depth = 2,
                                .hidden_dim = 48,
                                .intermediate_dim = 80,
                                .num_heads = 4,
                                .patch_size = 4,
                                .temporal_patch_size = 2,
                                .merge_size = 2,
                                .position_side = 6,
                                .out_hidden_dim = 56,
                                .rope_theta = 10000.0};
constexpr Grid kRealGrid{1, 64, 64}, kQuickGrid{1, 8, 6}, kVerifiedGrid{1, 4, 6};

/// Random matrices of a few blocks, packed again for every block: each has memory of its own, as real weights have.
class WeightMaker {
 public:
  WeightMaker(const VisionPlan& plan, Matmul& matmul, ferry::ThreadPool& pool, DType dtype)
      : plan_(plan), matmul_(matmul), pool_(pool), dtype_(dtype) {}

  VisionWeights make() {
    const int64_t hidden = plan_.hidden_dim, merged = plan_.merged_dim();
    VisionWeights weights;
    weights.patch_embed = linear(hidden, plan_.patch_cols());
    weights.pos_embed = vector(plan_.position_side * plan_.position_side * hidden, 0.5F, 0.0F);
    weights.merger_norm = {array(hidden, 0.2F, 1.0F), array(hidden, 0.2F, 0.0F)};
    weights.merger_fc1 = linear(merged, merged);
    weights.merger_fc2 = linear(plan_.out_hidden_dim, merged);
    weights.blocks.resize(static_cast<std::size_t>(plan_.depth));
    const Matrix qkv = matrix(3 * hidden, hidden), proj = matrix(hidden, hidden);
    const Matrix fc1 = matrix(plan_.intermediate_dim, hidden), fc2 = matrix(hidden, plan_.intermediate_dim);
    for (VisionBlockWeights& block : weights.blocks) {
      block.norm1 = {array(hidden, 0.2F, 1.0F), array(hidden, 0.2F, 0.0F)};
      block.norm2 = {array(hidden, 0.2F, 1.0F), array(hidden, 0.2F, 0.0F)};
      block.qkv = packed(qkv);
      block.proj = packed(proj);
      block.linear_fc1 = packed(fc1);
      block.linear_fc2 = packed(fc2);
    }
    return weights;
  }

 private:
  Matrix matrix(int64_t rows, int64_t cols) {
    const float largest = 1.7F / std::sqrt(static_cast<float>(cols));  // products as large as their factors
    return ferry::bench::uniform_matrix(dtype_, rows, cols, ++seed_, largest);
  }
  LinearWeights packed(const Matrix& weights) {
    return {matmul_.pack(weights.view(), ferry::WeightUse::kPlain, &pool_), array(weights.rows(), 0.1F, 0.0F)};
  }
  LinearWeights linear(int64_t rows, int64_t cols) { return packed(matrix(rows, cols)); }
  ferry::Array<float> array(int64_t size, float largest, float around) {
    return {ferry::host_memory(), std::span<const float>(vector(size, largest, around))};
  }
  std::vector<float> vector(int64_t size, float largest, float around) {
    const Matrix values = ferry::bench::uniform_matrix(DType::kF32, 1, size, ++seed_, largest);
    const float* first = values.view().row<float>(0);
    std::vector<float> all(first, first + size);
    for (float& x : all) x += around;
    return all;
  }

  const VisionPlan& plan_;
  Matmul& matmul_;
  ferry::ThreadPool& pool_;
  DType dtype_;
  uint32_t seed_ = 0;
};

Work work_of(const VisionPlan& plan, const Grid& grid, DType dtype) {
  const auto hidden = static_cast<double>(plan.hidden_dim), inter = static_cast<double>(plan.intermediate_dim);
  const auto depth = static_cast<double>(plan.depth), merged = static_cast<double>(plan.merged_dim());
  const auto rows = static_cast<double>(grid.num_patches()), tokens = rows / static_cast<double>(plan.merged_patches());
  const double embed = hidden * static_cast<double>(plan.patch_cols()),
               blocks = depth * (4 * hidden * hidden + 2 * hidden * inter);
  const double merger = merged * (merged + static_cast<double>(plan.out_hidden_dim));
  return {.bytes = (embed + blocks + merger) * static_cast<double>(dtype_bytes(dtype)),
          .operations = 2 * (rows * (embed + blocks) + tokens * merger) + depth * 4 * rows * rows * hidden,
          .dtype = dtype};
}

/// A tower with one set of kernels, and a picture.
struct Scene {
  Scene(Bench& bench, const VisionPlan& tower_plan, const Grid& picture, DType run_dtype, const char* kernels)
      : plan(tower_plan),
        grid(picture),
        dtype(run_dtype),
        backend(ferry::select_backend(kernels, "auto", run_dtype)),
        stream(backend, bench.pool()),
        weights(WeightMaker(plan, backend.matmul(), bench.pool(), run_dtype).make()),
        tower(plan, weights, stream, run_dtype, {.max_patches = picture.step_patches()}),
        patches(ferry::bench::uniform_matrix(DType::kF32, picture.num_patches(), plan.patch_cols(), 99)),
        out(run_dtype, picture.num_patches() / plan.merged_patches(), plan.out_hidden_dim) {}

  void run() { tower.forward(patches.view(), {&grid, 1}, out.view()); }

  VisionPlan plan;
  Grid grid;
  DType dtype;
  ferry::Backend backend;
  ferry::Stream stream;
  VisionWeights weights;
  VisionTower tower;
  Matrix patches, out;
};

/// The tower with fewer blocks against the reference kernels: these would take minutes for all of it.
void verify(Bench& bench, VisionPlan plan, DType dtype, const char* kernels, const std::string& name) {
  plan.depth = std::min<int64_t>(plan.depth, 2);
  Scene expected(bench, plan, kVerifiedGrid, dtype, "ref"), actual(bench, plan, kVerifiedGrid, dtype, kernels);
  expected.run();
  actual.run();
  ferry::bench::require_close(expected.out.view(), actual.out.view(), dtype == DType::kF32 ? 2e-5 : 0.02, name);
}

void measure_tower(Bench& bench, const VisionPlan& plan, const Grid& grid, DType dtype, const OpTable& table) {
  const std::string name = "tower, " + std::to_string(grid.num_patches()) + " patches " + dtype_name(dtype) + " " + table.name;
  verify(bench, plan, dtype, table.name, name);
  Scene scene(bench, plan, grid, dtype, table.name);
  bench.measure(name, work_of(plan, grid, dtype), [&](int64_t) { scene.run(); });
}

void measure_attention(Bench& bench, const VisionPlan& plan, const Grid& grid, DType dtype, const OpTable& table) {
  const std::string name =
      "attention, " + std::to_string(grid.num_patches()) + " patches " + dtype_name(dtype) + " " + table.name;
  const int64_t rows = grid.num_patches(), cols = plan.hidden_dim;
  const Matrix qkv = ferry::bench::uniform_matrix(dtype, rows, 3 * cols, 5);
  const auto attend = [&](const char* kernels, int64_t num_rows, Matrix& out) {
    const ferry::Backend backend = ferry::select_backend(kernels, "auto", dtype);
    ferry::Stream stream(backend, bench.pool());
    const ConstMatrixView part = qkv.view().rows_from(0, num_rows);
    ferry::segment_attention(stream, {.q = part.cols_from(0, cols),
                                      .k = part.cols_from(cols, cols),
                                      .v = part.cols_from(2 * cols, cols),
                                      .segment_ends = {&num_rows, 1},
                                      .num_heads = plan.num_heads,
                                      .out = out.top(num_rows)});
  };
  const int64_t few = std::min<int64_t>(rows, 300);
  Matrix expected(dtype, few, cols), out(dtype, rows, cols);
  attend("ref", few, expected);
  attend(table.name, few, out);
  ferry::bench::require_close(expected.view(), out.top(few), dtype == DType::kF32 ? 5e-6 : 2e-3, name);
  const auto pairs = static_cast<double>(rows * rows), width = static_cast<double>(cols);
  const bool has_units = &table == ferry::available_op_tables().front();  // that multiply in its place (select_backend)
  bench.measure(name,
                {.bytes = static_cast<double>(rows * dtype_bytes(dtype)) * 4 * width,
                 .operations = 4 * pairs * width,
                 .dtype = dtype,
                 .kernels = has_units ? "" : table.name},
                [&](int64_t) { attend(table.name, rows, out); });
}

}  // namespace

int main(int argc, char** argv) {
  return ferry::bench::run_program(argc, argv, "the vision tower", [](Bench& bench) {
    const bool is_quick = bench.settings().is_quick;
    const VisionPlan& plan = is_quick ? kQuickPlan : kRealPlan;
    const Grid& grid = is_quick ? kQuickGrid : kRealGrid;
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      for (const OpTable* table : ferry::available_op_tables()) {
        if (std::strcmp(table->name, "ref") == 0 || !bench.wants(table->name)) continue;
        measure_attention(bench, plan, grid, dtype, *table);
        measure_tower(bench, plan, grid, dtype, *table);
      }
    }
  });
}
