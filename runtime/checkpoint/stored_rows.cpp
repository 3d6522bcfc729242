#include "runtime/checkpoint/stored_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

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

int64_t col_blocks(const StoredRows& stored) { return (stored.cols + stored.format.block_cols - 1) / stored.format.block_cols; }

/// Where the scales of a row of e4m3 begin.
int64_t first_scale(const StoredRows& stored, int64_t row) {
  const SourceFormat& f = stored.format;
  const int64_t at = stored.first_row + row, matrix = at / stored.matrix_rows, in_matrix = at % stored.matrix_rows;
  const int64_t row_blocks = (stored.matrix_rows + f.block_rows - 1) / f.block_rows;
  return (matrix * row_blocks + in_matrix / f.block_rows) * col_blocks(stored);
}

void read_fp8_block(const StoredRows& stored, int64_t row, std::span<float> values) {
  const SourceFormat& f = stored.format;
  const int64_t scales = first_scale(stored, row);
  const std::byte* codes = stored.tensor->data + (stored.first_row + row) * stored.cols;
  for (int64_t block = 0; block < col_blocks(stored); ++block) {
    const float scale = number(*stored.scales, scales + block);
    const int64_t end = std::min(stored.cols, (block + 1) * f.block_cols);
    for (int64_t c = block * f.block_cols; c < end; ++c)
      values[static_cast<std::size_t>(c)] = e4m3_value(std::to_integer<uint8_t>(codes[c])) * scale;
  }
}

int64_t code_of(uint32_t word, int64_t i) { return static_cast<int64_t>(word >> (4 * (i % kCodesOfWord)) & 15U); }

/// The first form of the format stores zero points less one, by one subtraction from the whole word: 0 becomes 15 and borrows
/// from the next. One addition takes it back.
int64_t gptq_zero(const StoredRows& stored, int64_t group, int64_t r) {
  constexpr uint32_t kOneEach = 0x11111111;
  const auto word = element<uint32_t>(*stored.zeros, group * (stored.matrix_rows / kCodesOfWord) + r / kCodesOfWord);
  return code_of(word + kOneEach * static_cast<uint32_t>(stored.format.zero_offset), r);
}

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
    values[static_cast<std::size_t>(c)] =
        number(*stored.scales, group * n + r) * static_cast<float>(code - gptq_zero(stored, group, r));
  }
}

[[noreturn]] void refuse(const TensorInfo& tensor, const std::string& complaint) {
  throw_invalid(std::string(tensor.file) + ": tensor " + tensor.name + " " + complaint);
}

/// As panels hold it: of a wide group word 20 bits of mantissa are the scale's.
float finite_scale(const TensorInfo& scales, int64_t i, bool is_wide) {
  constexpr float kLargestCode = 448;  // of e4m3
  const float scale = number(scales, i);
  if (!std::isfinite(scale * kLargestCode)) {
    refuse(scales, "has the scale " + std::to_string(scale) + "; weights must be finite, and codes reach 448");
  }
  return is_wide ? std::bit_cast<float>((std::bit_cast<uint32_t>(scale) + 8) & ~0xFU) : scale;
}

void read_e4m3_codes(const StoredRows& stored, int64_t row, const RowCodes& to) {
  const int64_t at = stored.first_row + row;
  const auto* codes = reinterpret_cast<const uint8_t*>(stored.tensor->data) + at * stored.cols;
  std::copy_n(codes, stored.cols, to.codes.begin());
  for (int64_t c = 0; c < stored.cols; ++c) {
    if ((codes[c] & 0x7F) == kE4M3NaN)
      refuse(*stored.tensor,
             "has nan at row " + std::to_string(at) + ", column " + std::to_string(c) + "; weights must be finite");
  }
  const int64_t scales = first_scale(stored, row);
  for (int64_t block = 0; block < std::ssize(to.scales); ++block)
    to.scales[static_cast<std::size_t>(block)] = finite_scale(*stored.scales, scales + block, false);
}

void read_gptq_codes(const StoredRows& stored, int64_t row, const RowCodes& to) {
  const int64_t n = stored.matrix_rows, r = stored.first_row + row;
  for (int64_t c = 0; c < stored.cols; ++c) {
    const int64_t group = element<int32_t>(*stored.group_index, c);
    if (group != c / stored.format.group_size) {
      refuse(*stored.group_index,
             "has column " + std::to_string(c) + " in group " + std::to_string(group) +
                 ": columns in the order of their activations; allowed with --quantize native: groups of " +
                 "neighbouring columns");
    }
    to.codes[static_cast<std::size_t>(c)] =
        static_cast<uint8_t>(code_of(element<uint32_t>(*stored.tensor, c / kCodesOfWord * n + r), c));
  }
  for (int64_t group = 0; group < std::ssize(to.scales); ++group) {
    to.scales[static_cast<std::size_t>(group)] = finite_scale(*stored.scales, group * n + r, true);
    to.zero_points[static_cast<std::size_t>(group)] = static_cast<uint8_t>(gptq_zero(stored, group, r));
  }
}

}  // namespace

int64_t StoredRows::stored_bytes() const {
  if (format.kind == SourceFormat::Kind::kGptq) return rows * cols / 2;
  return rows * cols * stored_type_bytes(tensor->dtype);
}

std::optional<WeightType> stored_codes_type(const SourceFormat& format) {
  if (format.kind == SourceFormat::Kind::kPlain) return std::nullopt;
  const bool is_fp8 = format.kind == SourceFormat::Kind::kFp8Block;
  const int64_t size = is_fp8 ? format.block_cols : format.group_size;
  if (!is_group_size(size)) {
    throw_invalid("--quantize native: the checkpoint's scales are for " + std::to_string(size) +
                  " columns each; allowed: 32, 64, 128 or 256");
  }
  const auto group_size = static_cast<int32_t>(size);
  return is_fp8 ? WeightType{WeightFormat::kE4M3, group_size} : WeightType{WeightFormat::kInt4, group_size, true};
}

void read_codes(const StoredRows& stored, int64_t row, const RowCodes& to) {
  FERRY_CHECK(!stored.is_plain());
  stored.format.kind == SourceFormat::Kind::kFp8Block ? read_e4m3_codes(stored, row, to) : read_gptq_codes(stored, row, to);
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
