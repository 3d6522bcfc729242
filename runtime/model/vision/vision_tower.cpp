#include "runtime/model/vision/vision_tower.h"

#include <algorithm>
#include <string>

#include "profiler/span.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr float kNormEps = 1e-6F;  // in the source of the reference, not in config.json

// Rows of what only stands between two products. Products of 4096 rows at once are 5 to 10 % faster than of 2048, and 40 % than
// of 256: weights come from memory less often.
constexpr int64_t kChunkRows = 4096;

int64_t wide_cols(const VisionPlan& plan) { return std::max(plan.intermediate_dim, plan.patch_cols()); }

/// Of the buffers: a small tower needs no whole chunk.
int64_t chunk_rows(VisionTower::Limits limits) { return std::min(kChunkRows, limits.max_patches); }

/// Calls fn(first, count) for pieces of [0, rows).
template <class Fn>
void for_each_chunk(int64_t rows, int64_t chunk_rows, Fn fn) {
  for (int64_t first = 0; first < rows; first += chunk_rows) fn(first, std::min(chunk_rows, rows - first));
}

/// The first `rows` x `cols` elements of `matrix`, dense.
MatrixView dense_top(Matrix& matrix, int64_t rows, int64_t cols) {
  FERRY_CHECK_LE(rows * cols, matrix.rows() * matrix.cols());
  const MatrixView all = matrix.view();
  return {all.data, all.dtype, rows, cols, cols, all.space};
}

/// to = T(to + the taps of the table), the sum in fp32 and rounded before it is added.
template <class T>
void add_position(const PositionTaps& taps, const std::vector<float>& table, std::span<T> to) {
  const std::size_t cols = to.size();
  std::array<const float*, 4> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = table.data() + static_cast<std::size_t>(taps.rows[i]) * cols;
  for (std::size_t c = 0; c < cols; ++c) {
    float sum = 0.0F;
    for (std::size_t i = 0; i < rows.size(); ++i) sum += rows[i][c] * taps.weights[i];
    to[c] = from_float<T>(to_float(to[c]) + round_to<T>(sum));
  }
}

}  // namespace

VisionTower::VisionTower(const VisionPlan& plan, const VisionWeights& weights, Stream& stream, DType dtype, Limits limits)
    : plan_(plan),
      weights_(weights),
      stream_(stream),
      dtype_(dtype),
      limits_(limits),
      rope_(plan.head_dim(), plan.rope_theta),
      hidden_(stream.memory(), dtype, limits.max_patches, plan.hidden_dim),
      normed_(stream.memory(), dtype, limits.max_patches, plan.hidden_dim),
      qkv_(stream.memory(), dtype, limits.max_patches, 3 * plan.hidden_dim),
      wide_(stream.memory(), dtype, chunk_rows(limits), wide_cols(plan)),
      patch_rows_(stream, dtype, kChunkRows, plan.patch_cols()),
      hidden_rows_(stream, dtype, limits.max_patches, plan.hidden_dim),
      cos_(stream, limits.max_patches * plan.head_dim() / 2),
      sin_(stream, cos_.size()) {}

int64_t VisionTower::buffer_bytes(const VisionPlan& plan, DType dtype, Limits limits) {
  const int64_t values = limits.max_patches * 5 * plan.hidden_dim + chunk_rows(limits) * wide_cols(plan);
  return values * dtype_bytes(dtype) + limits.max_patches * plan.head_dim() * static_cast<int64_t>(sizeof(float));
}

void VisionTower::check_grid(const Grid& grid) const {
  const int64_t merge = plan_.merge_size;
  const std::string shape = std::to_string(grid.t) + " x " + std::to_string(grid.h) + " x " + std::to_string(grid.w);
  if (grid.t < 1 || grid.h < 1 || grid.w < 1 || grid.h % merge != 0 || grid.w % merge != 0) {
    throw_invalid("[vision] a grid of " + shape + " patches; allowed: positive multiples of " + std::to_string(merge) +
                  " rows and columns");
  }
  if (grid.h > limits_.max_patches || grid.w > limits_.max_patches || grid.step_patches() > limits_.max_patches) {
    throw_invalid("[vision] a grid of " + shape + " patches; allowed: at most " + std::to_string(limits_.max_patches) +
                  " in one step of time");
  }
}

void VisionTower::forward(ConstMatrixView patches, std::span<const Grid> grids, MatrixView out, const BlockTap& tap) {
  begin(patches, grids, out);
  while (!advance(tap)) {
  }
}

void VisionTower::begin(ConstMatrixView patches, std::span<const Grid> grids, MatrixView out) {
  FERRY_CHECK_EQ(patches.cols, plan_.patch_cols());
  FERRY_CHECK(patches.dtype == DType::kF32 && out.dtype == dtype_);
  FERRY_CHECK_EQ(out.cols, plan_.out_hidden_dim);
  FERRY_CHECK_EQ(out.rows * plan_.merged_patches(), patches.rows);
  for (const Grid& grid : grids) check_grid(grid);
  run_ = {.patches = patches, .out = out};
  for (const Grid& grid : grids) {
    for (int64_t t = 0; t < grid.t; ++t) run_.steps.push_back({.t = 1, .h = grid.h, .w = grid.w});
  }
}

bool VisionTower::advance(const BlockTap& tap) {
  Piece& piece = run_.piece;
  if (run_.block == 0 && run_.part == 0) take_piece();
  if (piece.steps.empty()) return true;
  if (!advance_block(weights_.blocks[static_cast<std::size_t>(run_.block)], piece)) return false;
  run_.part = 0;
  if (tap) tap(run_.block, hidden_.top(piece.num_rows()));
  if (++run_.block < plan_.depth) return false;
  run_.block = 0;
  const int64_t merged = plan_.merged_patches();
  merge(piece.num_rows(), run_.out.rows_from(piece.first_row / merged, piece.num_rows() / merged));
  return run_.next_step == run_.steps.size();
}

/// The next part: queries, keys and values of each chunk of rows, then attention of each group of heads, then what follows for
/// each chunk. True after the last.
bool VisionTower::advance_block(const VisionBlockWeights& block, const Piece& piece) {
  const int64_t num_rows = piece.num_rows(), num_chunks = (num_rows + kChunkRows - 1) / kChunkRows;
  const int64_t heads = heads_at_once(piece), num_groups = (plan_.num_heads + heads - 1) / heads;
  const auto rows_of_chunk = [&](int64_t chunk) { return std::min(kChunkRows, num_rows - chunk * kChunkRows); };
  const int64_t part = run_.part++;
  if (part < num_chunks) {
    project(block, part * kChunkRows, rows_of_chunk(part));
    return false;
  }
  if (const int64_t group = part - num_chunks; group < num_groups) {
    attend(piece, group * heads, std::min(heads, plan_.num_heads - group * heads));
    return false;
  }
  const int64_t chunk = part - num_chunks - num_groups;
  finish_rows(block, chunk * kChunkRows, rows_of_chunk(chunk));
  return chunk + 1 == num_chunks;
}

/// The next steps of time, as many as fit the buffers, up to their first block.
void VisionTower::take_piece() {
  Piece& piece = run_.piece;
  piece = {.first_row = piece.first_row + piece.num_rows()};
  while (run_.next_step < run_.steps.size()) {
    const Grid& step = run_.steps[run_.next_step];
    if (piece.num_rows() + step.step_patches() > limits_.max_patches) break;
    piece.ends.push_back(piece.num_rows() + step.step_patches());
    piece.steps.push_back(step);
    ++run_.next_step;
  }
  if (piece.steps.empty()) return;
  embed_patches(piece, run_.patches.rows_from(piece.first_row, piece.num_rows()));
  add_positions(piece);
}

void VisionTower::embed_patches(const Piece& piece, ConstMatrixView patches) {
  for_each_chunk(piece.num_rows(), kChunkRows, [&](int64_t first, int64_t count) {
    const MatrixView rows = dense_top(wide_, count, plan_.patch_cols()), written = patch_rows_.overwrite(rows);
    visit_dtype(dtype_, [&]<class T>() {
      stream_.pool().parallel_for(count, [&](int64_t r, int) {
        const float* from = patches.row<float>(first + r);
        T* to = written.row<T>(r);
        for (int64_t c = 0; c < rows.cols; ++c) to[c] = from_float<T>(from[c]);
      });
    });
    patch_rows_.send();
    const MatrixView hidden = hidden_.view().rows_from(first, count);
    multiply(weights_.patch_embed, rows, hidden);
  });
}

/// Adds the learned positions and finds the angles of all rows.
void VisionTower::add_positions(const Piece& piece) {
  const Span span(Zone::kVisionPositions, piece.num_rows());
  const int64_t half = plan_.head_dim() / 2;
  const MatrixView hidden = hidden_rows_.edit(hidden_.top(piece.num_rows()));
  float *cos = cos_.host(), *sin = sin_.host();
  int64_t first_row = 0;
  for (std::size_t s = 0; s < piece.steps.size(); ++s) {
    const Grid& grid = piece.steps[s];
    stream_.pool().parallel_for(grid.step_patches(), [&](int64_t i, int) {
      const PatchPlace place = patch_place(grid, plan_.merge_size, i);
      const PositionTaps taps = position_taps(grid, place, plan_.position_side);
      const int64_t row = first_row + i;
      visit_dtype(dtype_, [&]<class T>() {
        add_position<T>(taps, weights_.pos_embed, {hidden.row<T>(row), static_cast<std::size_t>(plan_.hidden_dim)});
      });
      rope_.write(place, cos + row * half, sin + row * half);
    });
    first_row = piece.ends[s];
  }
  hidden_rows_.send();
  cos_.send(0, piece.num_rows() * half);
  sin_.send(0, piece.num_rows() * half);
}

void VisionTower::project(const VisionBlockWeights& block, int64_t first_row, int64_t num_rows) {
  const MatrixView normed = normed_.view().rows_from(first_row, num_rows), qkv = qkv_.view().rows_from(first_row, num_rows);
  norm(block.norm1, hidden_.view().rows_from(first_row, num_rows), normed);
  multiply(block.qkv, normed, qkv);
  const int64_t half = plan_.head_dim() / 2;
  vision_rope(stream_, {.x = qkv.cols_from(0, 2 * plan_.hidden_dim),
                        .head_dim = plan_.head_dim(),
                        .cos = cos_.device() + first_row * half,
                        .sin = sin_.device() + first_row * half});
}

/// As many as all of a picture of kChunkRows patches, or fewer of larger ones.
int64_t VisionTower::heads_at_once(const Piece& piece) const {
  int64_t pairs = 0, begin = 0;
  for (const int64_t end : piece.ends) {
    pairs += (end - begin) * (end - begin);
    begin = end;
  }
  return std::clamp<int64_t>(plan_.num_heads * kChunkRows * kChunkRows / pairs, 1, plan_.num_heads);
}

void VisionTower::attend(const Piece& piece, int64_t first_head, int64_t num_heads) {
  const int64_t num_rows = piece.num_rows(), first_col = first_head * plan_.head_dim(), cols = num_heads * plan_.head_dim();
  const MatrixView qkv = qkv_.top(num_rows);
  segment_attention(stream_, {.q = qkv.cols_from(first_col, cols),
                              .k = qkv.cols_from(plan_.hidden_dim + first_col, cols),
                              .v = qkv.cols_from(2 * plan_.hidden_dim + first_col, cols),
                              .segment_ends = piece.ends,
                              .num_heads = num_heads,
                              .out = normed_.top(num_rows).cols_from(first_col, cols)});
}

/// What attention gave becomes part of the stream, and passes the network.
void VisionTower::finish_rows(const VisionBlockWeights& block, int64_t first_row, int64_t num_rows) {
  const MatrixView hidden = hidden_.view().rows_from(first_row, num_rows),
                   normed = normed_.view().rows_from(first_row, num_rows);
  add_product(block.proj, normed, hidden);
  norm(block.norm2, hidden, normed);
  const MatrixView wide = dense_top(wide_, num_rows, plan_.intermediate_dim);
  multiply(block.linear_fc1, normed, wide, BiasActivation::kGeluTanh);
  add_product(block.linear_fc2, wide, hidden);
}

void VisionTower::merge(int64_t num_rows, MatrixView out) {
  norm(weights_.merger_norm, hidden_.top(num_rows), normed_.top(num_rows));
  const int64_t num_merged = num_rows / plan_.merged_patches();
  const MatrixView side_by_side = dense_top(normed_, num_merged, plan_.merged_dim());
  const int64_t chunk = chunk_rows(limits_) / plan_.merged_patches();  // as many values as of a block; a step has one or more
  for_each_chunk(num_merged, chunk, [&](int64_t first, int64_t count) {
    const MatrixView inner = dense_top(wide_, count, plan_.merged_dim());
    multiply(weights_.merger_fc1, side_by_side.rows_from(first, count), inner, BiasActivation::kGelu);
    multiply(weights_.merger_fc2, inner, out.rows_from(first, count));
  });
}

void VisionTower::norm(const LayerNormWeights& weights, ConstMatrixView x, MatrixView out) {
  layer_norm(stream_, {.x = x, .weight = weights.weight.data(), .bias = weights.bias.data(), .eps = kNormEps, .out = out});
}

void VisionTower::multiply(const LinearWeights& weights, ConstMatrixView x, MatrixView out, BiasActivation activation) {
  const Span span(Zone::kVisionProduct, out.rows);
  const ProductFinish finish{.bias = weights.bias.data(), .activation = activation};
  matmul(stream_, {.x = x}, *weights.weight, out, finish);
}

void VisionTower::add_product(const LinearWeights& weights, ConstMatrixView x, MatrixView to) {
  const Span span(Zone::kVisionProduct, to.rows);
  const ProductFinish finish{.bias = weights.bias.data(), .residual = to};
  matmul(stream_, {.x = x}, *weights.weight, to, finish);
}

}  // namespace ferry
