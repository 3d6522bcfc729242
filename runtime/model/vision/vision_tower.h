#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/host_rows.h"
#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "runtime/model/vision/patch_positions.h"
#include "runtime/model/vision/vision_plan.h"
#include "runtime/model/vision/vision_weights.h"

namespace ferry {

/// From patches to embeddings of the decoder (transformers 5.17, Qwen3_5VisionModel):
///
///   h = patch_embed(patch) + positions
///   h = h + proj(attention(norm1(h)));  h = h + fc2(gelu_tanh(fc1(norm2(h))))     for every block
///   out = fc2(gelu(fc1(the norms of a merge block's patches side by side)))
///
/// A patch attends to those of its own picture and step of time, so a long input is computed in pieces of whole steps, and
/// what a picture becomes does not depend on what it is computed with. One thread at a time. Owns its buffers, sized at
/// construction.
class VisionTower {
 public:
  struct Limits {
    int64_t max_patches = 0;  // of one step of time of one picture: rows of the buffers
  };
  /// Called with the residual stream [rows, hidden] behind each block of each piece, for tests.
  using BlockTap = std::function<void(int64_t block_idx, ConstMatrixView hidden)>;

  /// Plan, weights, matmul and whatever `context` points to must outlive the tower. `dtype` is the run's.
  VisionTower(const VisionPlan& plan, const VisionWeights& weights, Stream& stream, DType dtype, Limits limits);

  /// What the buffers of a tower take, in bytes.
  static int64_t buffer_bytes(const VisionPlan& plan, DType dtype, Limits limits);

  /// Throws Error{kInvalidArgument} if a step of the grid has more patches than the limits let, or is not made of merge blocks.
  void check_grid(const Grid& grid) const;

  /// patches [N, patch_cols] f32, those of all grids one after the other; out [N / merged_patches, out_hidden] in the run's
  /// dtype. Throws as check_grid() does.
  void forward(ConstMatrixView patches, std::span<const Grid> grids, MatrixView out, const BlockTap& tap = {});
  /// The same a part at a time, so that others can work in between: patches and out stay where they are until the end. What
  /// was begun before is forgotten.
  void begin(ConstMatrixView patches, std::span<const Grid> grids, MatrixView out);
  /// Computes the next part of a block of the steps of time that are under way: products of some thousand rows, or attention of
  /// as many heads as take about as long. True when `out` is complete.
  bool advance(const BlockTap& tap = {});

  const Limits& limits() const { return limits_; }

 private:
  /// Steps of time that are computed together.
  struct Piece {
    std::vector<Grid> steps;    // t = 1 each
    std::vector<int64_t> ends;  // [steps] rows
    int64_t first_row = 0;      // of all patches
    int64_t num_rows() const { return ends.empty() ? 0 : ends.back(); }
  };

  /// What begin() was given and how far it is.
  struct Run {
    ConstMatrixView patches;
    MatrixView out;
    std::vector<Grid> steps;  // t = 1 each
    std::size_t next_step = 0;
    Piece piece;
    int64_t block = 0;  // the next of the piece
    int64_t part = 0;   // the next of the block
  };

  void take_piece();
  void embed_patches(const Piece& piece, ConstMatrixView patches);
  void add_positions(const Piece& piece);
  bool advance_block(const VisionBlockWeights& block, const Piece& piece);
  void project(const VisionBlockWeights& block, int64_t first_row, int64_t num_rows);
  int64_t heads_at_once(const Piece& piece) const;
  void attend(const Piece& piece, int64_t first_head, int64_t num_heads);
  void finish_rows(const VisionBlockWeights& block, int64_t first_row, int64_t num_rows);
  void merge(int64_t num_rows, MatrixView out);
  void norm(const LayerNormWeights& weights, ConstMatrixView x, MatrixView out);
  /// out = activation(W x + bias)
  void multiply(const LinearWeights& weights, ConstMatrixView x, MatrixView out,
                BiasActivation activation = BiasActivation::kNone);
  /// to += W x + bias
  void add_product(const LinearWeights& weights, ConstMatrixView x, MatrixView to);

  const VisionPlan& plan_;
  const VisionWeights& weights_;
  Stream& stream_;
  DType dtype_;
  Limits limits_;
  AxialRope rope_;

  Matrix hidden_;  // [max_patches, hidden] the residual stream
  Matrix normed_;  // [max_patches, hidden] what a block reads, and what attention gives
  Matrix qkv_;     // [max_patches, 3 * hidden]
  Matrix wide_;    // [chunk, the wider of intermediate and patch_cols]; the inner rows of the merger
  Run run_;
  HostRows patch_rows_, hidden_rows_;  // the host's hand on rows of wide_ and hidden_
  Mirror<float> cos_, sin_;            // [max_patches, head_dim / 2]
};

}  // namespace ferry
