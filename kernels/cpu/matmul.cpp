#include "kernels/matmul.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/matmul_kernel.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kPackK = 32;  // k of one packing step: a cache line (bf16) or two (f32) of each of the panel's 32 rows

/// Weights in panels (matmul_kernel.h).
class PanelMatrix final : public PackedMatrix {
 public:
  explicit PanelMatrix(ConstMatrixView weights);
  int64_t packed_bytes() const override { return static_cast<int64_t>(panels_.size()); }
  const std::byte* panel(int64_t panel_idx) const {
    return panels_.data() + panel_idx * kPanelCols * k() * dtype_bytes(dtype());
  }

 private:
  AlignedBuffer panels_;
};

/// Writes kPackK or fewer rows of a panel from `tile` [32 columns, kPackK].
void write_panel_rows(const float (&tile)[kPanelCols][kPackK], int64_t num_k, float* to) {
  for (int64_t k = 0; k < num_k; ++k) {
    for (int64_t c = 0; c < kPanelCols; ++c) to[k * kPanelCols + c] = tile[c][k];
  }
}
void write_panel_rows(const bfloat16 (&tile)[kPanelCols][kPackK], int64_t num_k, bfloat16* to) {
  for (int64_t k = 0; k < num_k; ++k) {
    for (int64_t j = 0; j < kPanelCols / 2; ++j) {  // little endian: the lower half of a word comes first
      to[k * kPanelCols + 2 * j] = tile[j][k];
      to[k * kPanelCols + 2 * j + 1] = tile[j + kPanelCols / 2][k];
    }
  }
}

/// Packs columns [first, first + 32) of the product, which are rows of `weights`.
template <class T>
void pack_panel(ConstMatrixView weights, int64_t first, T* to) {
  T tile[kPanelCols][kPackK] = {};  // columns behind the last stay zero
  const int64_t num_cols = std::min(kPanelCols, weights.rows - first);
  for (int64_t k = 0; k < weights.cols; k += kPackK) {
    const int64_t num_k = std::min(kPackK, weights.cols - k);
    for (int64_t c = 0; c < num_cols; ++c) {
      std::memcpy(tile[c], weights.row<T>(first + c) + k, static_cast<std::size_t>(num_k) * sizeof(T));
    }
    write_panel_rows(tile, num_k, to + k * kPanelCols);
  }
}

PanelMatrix::PanelMatrix(ConstMatrixView weights) : PackedMatrix(weights.rows, weights.cols, weights.dtype) {
  FERRY_CHECK_GE(weights.rows, 1);
  FERRY_CHECK_GE(weights.cols, 1);
  const int64_t num_panels = (weights.rows + kPanelCols - 1) / kPanelCols;
  panels_ = AlignedBuffer(static_cast<std::size_t>(num_panels * kPanelCols * weights.cols * dtype_bytes(weights.dtype)));
  visit_dtype(weights.dtype, [&]<class T>() {
    for (int64_t p = 0; p < num_panels; ++p) {
      pack_panel<T>(weights, p * kPanelCols, panels_.as<T>() + p * kPanelCols * weights.cols);
    }
  });
}

class CpuMatmul final : public MatmulBackend {
 public:
  using BlockFn = void (*)(const MatmulBlock&);
  CpuMatmul(const char* name, BlockFn block_fn) : name_(name), block_fn_(block_fn) {}

  const char* name() const override { return name_; }
  std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights) override { return std::make_unique<PanelMatrix>(weights); }
  void grouped_matmul(ThreadPool& pool, const GroupedMatmulArgs& args) override;

 private:
  void add_blocks(const GroupedMatmulArgs& args, int64_t first_row, int64_t num_rows, const PanelMatrix& weights,
                  int64_t block_panels);

  const char* name_;
  BlockFn block_fn_;
  std::vector<MatmulBlock> blocks_;  // of the call in progress; keeps its capacity
};

/// Panels of one block so that `num_threads` threads have several blocks each; a result does not depend on it.
int64_t choose_block_panels(const GroupedMatmulArgs& args, int64_t num_panels, int num_threads) {
  int64_t row_blocks = 0;
  for (const int32_t count : args.counts) row_blocks += (count + kMaxBlockRows - 1) / kMaxBlockRows;
  constexpr int64_t kBlocksPerThread = 8;
  const int64_t wanted = row_blocks * num_panels / (kBlocksPerThread * num_threads);
  return std::clamp<int64_t>(wanted, 1, kMaxBlockPanels);
}

/// Appends the blocks of one group: all rows for the first panels, then all rows for the next, so that weights are read once.
void CpuMatmul::add_blocks(const GroupedMatmulArgs& args, int64_t first_row, int64_t num_rows, const PanelMatrix& weights,
                           int64_t block_panels) {
  const int64_t num_panels = (weights.n() + kPanelCols - 1) / kPanelCols;
  const int64_t row_blocks = (num_rows + kMaxBlockRows - 1) / kMaxBlockRows;
  for (int64_t panel = 0; panel < num_panels; panel += block_panels) {
    const int64_t first_col = panel * kPanelCols;
    for (int64_t b = 0; b < row_blocks; ++b) {  // even blocks: 65 rows are 32 + 33
      const int64_t row = first_row + num_rows * b / row_blocks;
      const int64_t end = first_row + num_rows * (b + 1) / row_blocks;
      blocks_.push_back({.x = args.x.row_bytes(row),
                         .x_stride = args.x.row_stride,
                         .panels = weights.panel(panel),
                         .out = args.out.row_bytes(row) + first_col * dtype_bytes(args.out.dtype),
                         .out_stride = args.out.row_stride,
                         .num_rows = end - row,
                         .num_cols = std::min(block_panels * kPanelCols, weights.n() - first_col),
                         .k = weights.k(),
                         .dtype = args.x.dtype});
    }
  }
}

void CpuMatmul::grouped_matmul(ThreadPool& pool, const GroupedMatmulArgs& args) {
  FERRY_CHECK_EQ(args.counts.size(), args.weights.size());
  FERRY_CHECK(args.x.dtype == args.out.dtype);
  FERRY_CHECK_EQ(args.x.rows, args.out.rows);
  const int64_t num_panels = (args.out.cols + kPanelCols - 1) / kPanelCols;
  const int64_t block_panels = choose_block_panels(args, num_panels, pool.num_threads());
  blocks_.clear();
  int64_t row = 0;
  for (std::size_t g = 0; g < args.counts.size(); ++g) {
    const int64_t num_rows = args.counts[g];
    FERRY_CHECK_GE(num_rows, 0);
    if (num_rows == 0) continue;
    const auto& weights = static_cast<const PanelMatrix&>(*args.weights[g]);
    FERRY_CHECK_EQ(weights.k(), args.x.cols);
    FERRY_CHECK_EQ(weights.n(), args.out.cols);
    FERRY_CHECK(weights.dtype() == args.x.dtype);
    FERRY_CHECK_LE(row + num_rows, args.x.rows);
    add_blocks(args, row, num_rows, weights, block_panels);
    row += num_rows;
  }
  FERRY_CHECK_EQ(row, args.x.rows);
  const int64_t num_blocks = static_cast<int64_t>(blocks_.size());
  if (num_blocks == 0) return;
  pool.parallel_for(num_blocks, [this](int64_t block_idx, int) { block_fn_(blocks_[static_cast<std::size_t>(block_idx)]); });
}

}  // namespace

std::unique_ptr<MatmulBackend> make_cpu_matmul(const char* isa) {
  const std::string_view wanted = isa;
  if (wanted == "avx512") return std::make_unique<CpuMatmul>("cpu_avx512", cpu_avx512::matmul_block);
  if (wanted == "avx2") return std::make_unique<CpuMatmul>("cpu_avx2", cpu_avx2::matmul_block);
  throw_invalid("--kernels: no matrix product for '" + std::string(wanted) + "'; allowed: avx2, avx512");
}

}  // namespace ferry
