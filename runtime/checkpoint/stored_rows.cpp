#include "runtime/checkpoint/stored_rows.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/e4m3.h"
#include "kernels/tensor.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kCodesOfWord = 8;  // GPTQ's 4-bit codes in 32 bits

template <class T>
T element(const TensorInfo& tensor, int64_t i) {
  T value;
  std::memcpy(&value, tensor.data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

/// Sign, 5 bits of exponent with bias 15, 10 of mantissa.
float decode_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                              : std::ldexp(1.0F + static_cast<float>(mantissa) / 1024, exponent - 15);
  if (exponent == 31) value = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  return (bits & 0x8000) != 0 ? -value : value;
}

/// Of scales.
float number(const TensorInfo& tensor, int64_t i) {
  if (tensor.dtype == StoredType::kF32) return element<float>(tensor, i);
  if (tensor.dtype == StoredType::kF16) return decode_f16(element<uint16_t>(tensor, i));
  return to_float(element<bfloat16>(tensor, i));
}

template <class T>
void read_plain(const StoredRows& stored, int64_t row, std::span<float> values) {
  const int64_t first = (stored.first_row + row) * stored.cols;
  for (std::size_t c = 0; c < values.size(); ++c)
    values[c] = to_float(element<T>(*stored.tensor, first + static_cast<int64_t>(c)));
}

void read_fp8_block(const StoredRows& stored, int64_t row, std::span<float> values) {
  const SourceFormat& f = stored.format;
  const int64_t at = stored.first_row + row, matrix = at / stored.matrix_rows, in_matrix = at % stored.matrix_rows;
  const int64_t row_blocks = (stored.matrix_rows + f.block_rows - 1) / f.block_rows;
  const int64_t col_blocks = (stored.cols + f.block_cols - 1) / f.block_cols;
  const int64_t first_scale = (matrix * row_blocks + in_matrix / f.block_rows) * col_blocks;
  const std::byte* codes = stored.tensor->data + at * stored.cols;
  for (int64_t block = 0; block < col_blocks; ++block) {
    const float scale = number(*stored.scales, first_scale + block);
    const int64_t end = std::min(stored.cols, (block + 1) * f.block_cols);
    for (int64_t c = block * f.block_cols; c < end; ++c)
      values[static_cast<std::size_t>(c)] = e4m3_value(std::to_integer<uint8_t>(codes[c])) * scale;
  }
}

int64_t code_of(uint32_t word, int64_t i) { return static_cast<int64_t>(word >> (4 * (i % kCodesOfWord)) & 15U); }

void read_gptq(const StoredRows& stored, int64_t row, std::span<float> values) {
  const int64_t n = stored.matrix_rows, r = stored.first_row + row;
  for (int64_t c = 0; c < stored.cols; ++c) {
    const int64_t group = element<int32_t>(*stored.group_index, c);
    if (group < 0 || group >= stored.scales->shape[0]) {
      throw_invalid(std::string(stored.group_index->file) + ": tensor " + stored.group_index->name + " has " +
                    std::to_string(group) + " at column " + std::to_string(c) + "; allowed: 0 to " +
                    std::to_string(stored.scales->shape[0] - 1));
    }
    const int64_t code = code_of(element<uint32_t>(*stored.tensor, c / kCodesOfWord * n + r), c);
    const int64_t zero =
        code_of(element<uint32_t>(*stored.zeros, group * (n / kCodesOfWord) + r / kCodesOfWord), r) + stored.format.zero_offset;
    values[static_cast<std::size_t>(c)] = number(*stored.scales, group * n + r) * static_cast<float>(code - zero);
  }
}

}  // namespace

int64_t StoredRows::stored_bytes() const {
  if (format.kind == SourceFormat::Kind::kGptq) return rows * cols / 2;
  return rows * cols * stored_type_bytes(tensor->dtype);
}

void read_row(const StoredRows& stored, int64_t row, std::span<float> values) {
  FERRY_CHECK_EQ(static_cast<int64_t>(values.size()), stored.cols);
  switch (stored.format.kind) {
    case SourceFormat::Kind::kPlain:
      if (stored.tensor->dtype == StoredType::kF32) return read_plain<float>(stored, row, values);
      return read_plain<bfloat16>(stored, row, values);
    case SourceFormat::Kind::kFp8Block: return read_fp8_block(stored, row, values);
    case SourceFormat::Kind::kGptq: return read_gptq(stored, row, values);
  }
}

}  // namespace ferry
