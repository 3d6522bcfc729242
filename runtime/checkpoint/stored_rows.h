#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/weight_format.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/source_format.h"

namespace ferry {

/// Some rows of a stored matrix [n, k], or of a stack of them, with all of their columns or some neighbouring ones. What the
/// values W[r, c] follow from:
///
/// kPlain: F32, BF16 or F16 as they are.
///
/// kFp8Block: e4m3(tensor[r, c]) * scales[r / block_rows, c / block_cols]; in a stack each matrix has its own blocks.
///
/// kIntegers: scale(g, r) * (code(r, c) - zero(g, r)) with g = group_index[c], or c / group_size without one. tensor, scales
/// and zeros are laid out as format.layout says; zeros hold zero_offset of each code less than the zero points.
struct StoredRows {
  const TensorInfo* tensor = nullptr;
  int64_t first_row = 0;  // of the tensor seen as [product of the leading dims, k]
  int64_t rows = 0;
  int64_t cols = 0;
  SourceFormat format;
  int64_t matrix_rows = 0;  // n
  int64_t matrix_cols = 0;  // k
  int64_t first_col = 0;
  const TensorInfo* scales = nullptr;
  const TensorInfo* zeros = nullptr;        // of kIntegers, if there are any
  const TensorInfo* group_index = nullptr;  // likewise; I32 [k]
  const TensorInfo* shape = nullptr;        // likewise; checked already

  bool is_plain() const { return format.kind == SourceFormat::Kind::kPlain; }
  /// Of the checkpoint, scales aside.
  int64_t stored_bytes() const;
  /// Where row `row` begins; not of kIntegers.
  const std::byte* row_data(int64_t row) const;
  /// Of one row in `tensor` with all its columns; 0 where rows do not lie together.
  int64_t row_bytes() const;
};

/// The type in which a matrix product takes the codes of such a format as they are; absent for plain weights and integers of 8
/// bits. Throws Error{kInvalidArgument} for blocks or groups of a size that no product takes.
std::optional<WeightType> stored_codes_type(const SourceFormat& format);

/// What a row of codes becomes in a QuantizedMatrix.
struct RowCodes {
  std::span<uint8_t> codes;        // [cols]
  std::span<float> scales;         // [groups] of stored_codes_type(); several may have come from one
  std::span<uint8_t> zero_points;  // [groups]; empty of e4m3
};
/// Row `row` of `stored`, which is not plain; its first column is that of a product's group. Throws Error{kInvalidArgument} for
/// a code that is not finite or a scale with which one would not be, and for columns of a group that do not lie together.
void read_codes(const StoredRows& stored, int64_t row, const RowCodes& to);

/// Row `row` of `stored` as f32: values [cols]. Throws Error{kInvalidArgument} for a group index that names no group.
void read_row(const StoredRows& stored, int64_t row, std::span<float> values);

}  // namespace ferry
