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

constexpr int64_t kWordBytes = 4;
constexpr int64_t kSplitGroup = 128;  // of whole rows, or of larger blocks and groups, in products

template <class T>
T element(const TensorInfo& tensor, int64_t i) {
  T value;
  std::memcpy(&value, tensor.data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

struct float16 {
  uint16_t bits;  // sign, 5 of exponent with bias 15, 10 of mantissa
};

using ferry::to_float;
float to_float(float16 value) {
  const int exponent = value.bits >> 10 & 31, mantissa = value.bits & 1023;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                  : std::ldexp(1.0F + static_cast<float>(mantissa) / 1024, exponent - 15);
  if (exponent == 31)
    magnitude = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  return (value.bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/// Calls fn with a value of the type that a plain tensor or scales are stored in.
template <class Fn>
void visit_number_type(StoredType type, Fn&& fn) {
  if (type == StoredType::kF32) return fn(float());
  if (type == StoredType::kF16) return fn(float16());
  fn(bfloat16());
}

/// Of scales.
float number(const TensorInfo& tensor, int64_t i) {
  float value = 0;
  visit_number_type(tensor.dtype, [&]<class T>(T) { value = to_float(element<T>(tensor, i)); });
  return value;
}

void read_plain(const StoredRows& stored, int64_t row, std::span<float> values) {
  const int64_t first = (stored.first_row + row) * stored.matrix_cols + stored.first_col;
  visit_number_type(stored.tensor->dtype, [&]<class T>(T) {
    for (std::size_t c = 0; c < values.size(); ++c)
      values[c] = to_float(element<T>(*stored.tensor, first + static_cast<int64_t>(c)));
  });
}

/// Columns under one scale; 0 for whole rows.
int64_t columns_per_scale(const SourceFormat& f) {
  return f.kind == SourceFormat::Kind::kFp8Block ? f.block_cols : f.group_size;
}
int64_t scaled_cols(const StoredRows& stored) {
  const int64_t size = columns_per_scale(stored.format);
  return size == 0 ? stored.matrix_cols : size;
}
/// The same where a product takes the codes.
int64_t product_group(const SourceFormat& f) {
  const int64_t size = columns_per_scale(f);
  return size % kSplitGroup == 0 && !is_group_size(size) ? kSplitGroup : size;
}

/// Of a whole row.
int64_t num_groups(const StoredRows& stored) { return ceil_divide(stored.matrix_cols, scaled_cols(stored)); }

/// Where the scales of a row of e4m3 begin.
int64_t first_scale(const StoredRows& stored, int64_t row) {
  const SourceFormat& f = stored.format;
  const int64_t at = stored.first_row + row, matrix = at / stored.matrix_rows, in_matrix = at % stored.matrix_rows;
  const int64_t row_blocks = (stored.matrix_rows + f.block_rows - 1) / f.block_rows;
  return (matrix * row_blocks + in_matrix / f.block_rows) * num_groups(stored);
}

void read_fp8_block(const StoredRows& stored, int64_t row, std::span<float> values) {
  const int64_t scales = first_scale(stored, row), size = scaled_cols(stored);
  const std::byte* codes = stored.row_data(row);
  for (int64_t c = 0; c < stored.cols;) {
    const int64_t block = (stored.first_col + c) / size, end = std::min(stored.cols, (block + 1) * size - stored.first_col);
    const float scale = number(*stored.scales, scales + block);
    for (; c < end; ++c) values[static_cast<std::size_t>(c)] = e4m3_value(std::to_integer<uint8_t>(codes[c])) * scale;
  }
}

/// The code of neighbour `i` in its word.
uint8_t code_of(const SourceFormat& f, uint32_t word, int64_t i) {
  const int64_t place = f.layout->place[static_cast<std::size_t>(i % f.codes_per_word())];
  return static_cast<uint8_t>(word >> (f.bits * place) & ((1U << f.bits) - 1));
}

/// The codes of row `r` of the matrix: words one after another along the columns, or one place of a column of words.
void unpack_row(const StoredRows& stored, int64_t r, std::span<uint8_t> codes) {
  const SourceFormat& f = stored.format;
  const int64_t per_word = f.codes_per_word(), cols = stored.matrix_cols;
  const int64_t height = f.layout->is_word_of_rows ? ceil_divide(stored.matrix_rows, per_word) : stored.matrix_rows;
  const int64_t width = f.layout->is_word_of_rows ? cols : ceil_divide(cols, per_word);
  const int64_t line = f.layout->is_word_of_rows ? r / per_word : r;
  const int64_t first = f.layout->is_transposed ? line : line * width, step = f.layout->is_transposed ? height : 1;
  const int64_t begin = stored.first_col, end = begin + std::ssize(codes);
  for (int64_t c = begin; c < end;) {
    const int64_t w = f.layout->is_word_of_rows ? c : c / per_word;
    const auto word = element<uint32_t>(*stored.tensor, first + w * step);
    const int64_t word_end = f.layout->is_word_of_rows ? c + 1 : std::min(end, (w + 1) * per_word);
    for (; c < word_end; ++c) codes[static_cast<std::size_t>(c - begin)] = code_of(f, word, f.layout->is_word_of_rows ? r : c);
  }
}

/// Of group `g` and row `r`. What is stored with an offset was lessened by one subtraction from the whole word: 0 becomes the
/// largest code and borrows from the next. One addition takes it back.
uint8_t zero_point(const StoredRows& stored, int64_t g, int64_t r) {
  const SourceFormat& f = stored.format;
  if (stored.zeros == nullptr) return static_cast<uint8_t>(1U << (f.bits - 1));
  const int64_t line = r / f.codes_per_word(), height = ceil_divide(stored.matrix_rows, f.codes_per_word());
  const auto word =
      element<uint32_t>(*stored.zeros, f.layout->is_transposed ? g * height + line : line * num_groups(stored) + g);
  const uint32_t one_each = UINT32_MAX / ((1U << f.bits) - 1);
  return code_of(f, word + one_each * static_cast<uint32_t>(f.zero_offset), r);
}

/// Where the scale of group `g` and row `r` is.
int64_t scale_index(const StoredRows& stored, int64_t g, int64_t r) {
  return stored.format.layout->is_transposed ? g * stored.matrix_rows + r : r * num_groups(stored) + g;
}

int64_t group_of(const StoredRows& stored, int64_t c) {
  if (stored.group_index == nullptr) return c / scaled_cols(stored);
  const int64_t group = element<int32_t>(*stored.group_index, c);
  if (group < 0 || group >= num_groups(stored)) {
    throw_invalid(std::string(stored.group_index->file) + ": tensor " + stored.group_index->name + " has " +
                  std::to_string(group) + " at column " + std::to_string(c) + "; allowed: 0 to " +
                  std::to_string(num_groups(stored) - 1));
  }
  return group;
}

void read_integers(const StoredRows& stored, int64_t row, std::span<float> values) {
  const int64_t r = stored.first_row + row;
  std::vector<uint8_t> codes(values.size());
  unpack_row(stored, r, codes);
  int64_t group = -1;  // of the column before
  float scale = 0;
  int32_t zero = 0;
  for (std::size_t c = 0; c < values.size(); ++c) {
    const int64_t of_column = group_of(stored, stored.first_col + static_cast<int64_t>(c));
    if (of_column != group) {
      group = of_column;
      scale = number(*stored.scales, scale_index(stored, group, r));
      zero = zero_point(stored, group, r);
    }
    values[c] = scale * static_cast<float>(codes[c] - zero);
  }
}

/// As panels hold it: of a wide group word 20 bits of mantissa are the scale's.
float finite_scale(const TensorInfo& scales, int64_t i, bool is_wide) {
  constexpr float kLargestCode = 448;  // of e4m3
  const float scale = number(scales, i);
  if (!std::isfinite(scale * kLargestCode)) {
    refuse_tensor(scales, "has the scale " + std::to_string(scale) + "; weights must be finite, and codes reach 448");
  }
  return is_wide ? std::bit_cast<float>((std::bit_cast<uint32_t>(scale) + 8) & ~0xFU) : scale;
}

void read_e4m3_codes(const StoredRows& stored, int64_t row, const RowCodes& to) {
  const int64_t at = stored.first_row + row;
  const auto* codes = reinterpret_cast<const uint8_t*>(stored.row_data(row));
  std::copy_n(codes, stored.cols, to.codes.begin());
  for (int64_t c = 0; c < stored.cols; ++c) {
    if ((codes[c] & 0x7F) == kE4M3NaN)
      refuse_tensor(*stored.tensor, "has nan at row " + std::to_string(at) + ", column " +
                                        std::to_string(stored.first_col + c) + "; weights must be finite");
  }
  const int64_t scales = first_scale(stored, row), group_cols = product_group(stored.format);
  for (int64_t group = 0; group < std::ssize(to.scales); ++group) {
    const int64_t block = (stored.first_col + group * group_cols) / scaled_cols(stored);
    to.scales[static_cast<std::size_t>(group)] = finite_scale(*stored.scales, scales + block, false);
  }
}

void read_integer_codes(const StoredRows& stored, int64_t row, const RowCodes& to) {
  const int64_t r = stored.first_row + row;
  unpack_row(stored, r, to.codes);
  const int64_t end = stored.first_col + stored.cols;
  for (int64_t c = stored.first_col; stored.group_index != nullptr && c < end; ++c) {
    if (const int64_t group = group_of(stored, c); group != c / scaled_cols(stored)) {
      refuse_tensor(*stored.group_index,
                    "has column " + std::to_string(c) + " in group " + std::to_string(group) +
                        ": columns in the order of their activations; allowed with --quantize native: groups of " +
                        "neighbouring columns");
    }
  }
  const int64_t group_cols = product_group(stored.format);
  for (int64_t group = 0; group < std::ssize(to.scales); ++group) {
    const int64_t source = (stored.first_col + group * group_cols) / scaled_cols(stored);
    to.scales[static_cast<std::size_t>(group)] = finite_scale(*stored.scales, scale_index(stored, source, r), true);
    to.zero_points[static_cast<std::size_t>(group)] = zero_point(stored, source, r);
  }
}

}  // namespace

int64_t StoredRows::stored_bytes() const {
  if (format.kind == SourceFormat::Kind::kIntegers) return rows * cols * format.bits / 8;
  return rows * cols * stored_type_bytes(tensor->dtype);
}

const std::byte* StoredRows::row_data(int64_t row) const {
  return tensor->data + ((first_row + row) * matrix_cols + first_col) * stored_type_bytes(tensor->dtype);
}

int64_t StoredRows::row_bytes() const {
  if (format.kind != SourceFormat::Kind::kIntegers) return matrix_cols * stored_type_bytes(tensor->dtype);
  return format.layout->is_transposed ? 0 : ceil_divide(matrix_cols, format.codes_per_word()) * kWordBytes;
}

std::optional<WeightType> stored_codes_type(const SourceFormat& format) {
  const bool is_fp8 = format.kind == SourceFormat::Kind::kFp8Block;
  if (format.kind == SourceFormat::Kind::kPlain || (!is_fp8 && format.bits != 4)) return std::nullopt;
  const auto group_size = static_cast<int32_t>(product_group(format));
  if (!is_group_size(group_size)) {
    throw_invalid("--quantize native: the checkpoint's scales are for " + std::to_string(group_size) +
                  " columns each; allowed: 32, 64, multiples of 128, whole rows");
  }
  return is_fp8 ? WeightType{WeightFormat::kE4M3, group_size} : WeightType{WeightFormat::kInt4, group_size, true};
}

void read_codes(const StoredRows& stored, int64_t row, const RowCodes& to) {
  FERRY_CHECK(!stored.is_plain());
  FERRY_CHECK(stored.first_col == 0 || stored.first_col % product_group(stored.format) == 0);
  stored.format.kind == SourceFormat::Kind::kFp8Block ? read_e4m3_codes(stored, row, to) : read_integer_codes(stored, row, to);
}

void read_row(const StoredRows& stored, int64_t row, std::span<float> values) {
  FERRY_CHECK_EQ(static_cast<int64_t>(values.size()), stored.cols);
  switch (stored.format.kind) {
    case SourceFormat::Kind::kPlain: return read_plain(stored, row, values);
    case SourceFormat::Kind::kFp8Block: return read_fp8_block(stored, row, values);
    case SourceFormat::Kind::kIntegers: return read_integers(stored, row, values);
  }
}

}  // namespace ferry
