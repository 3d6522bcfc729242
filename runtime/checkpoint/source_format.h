#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ferry {

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Where a checkpoint keeps integer codes of 4 or 8 bits: in words of 32 bits, neighbours together, the last word filled
/// up. The names stand in the place of ".weight"; an empty one is not there.
struct IntegerLayout {
  std::string_view name;
  std::string_view codes, scales, zeros, group_index;
  std::string_view shape;                                // I64 [2]: rows and columns once more
  bool is_transposed = false;                            // [columns, rows] and [groups, rows] instead of [rows, …]
  bool is_word_of_rows = false;                          // of codes; otherwise of columns. Zero points: always of rows
  bool has_8_bits = true;                                // otherwise codes have 4
  std::array<uint8_t, 8> place{0, 1, 2, 3, 4, 5, 6, 7};  // of each neighbour in its word, counted from the lowest bits
};

inline constexpr IntegerLayout kGptq{.name = "GPTQ",
                                     .codes = ".qweight",
                                     .scales = ".scales",
                                     .zeros = ".qzeros",
                                     .group_index = ".g_idx",
                                     .is_transposed = true};
inline constexpr IntegerLayout kAwq{.name = "AWQ",
                                    .codes = ".qweight",
                                    .scales = ".scales",
                                    .zeros = ".qzeros",
                                    .is_transposed = true,
                                    .is_word_of_rows = true,
                                    .has_8_bits = false,
                                    .place = {0, 4, 1, 5, 2, 6, 3, 7}};
/// "pack-quantized" of compressed-tensors.
inline constexpr IntegerLayout kPackQuantized{.name = "pack-quantized",
                                              .codes = ".weight_packed",
                                              .scales = ".weight_scale",
                                              .zeros = ".weight_zero_point",
                                              .group_index = ".weight_g_idx",
                                              .shape = ".weight_shape"};

/// How a checkpoint stores the matrices that it has quantised; plain ones beside them tell by their type.
struct SourceFormat {
  enum class Kind : uint8_t { kPlain, kFp8Block, kIntegers } kind = Kind::kPlain;
  // Of kFp8Block. Weights under one scale, the last blocks may be smaller; no block_cols: whole rows.
  int64_t block_rows = 128, block_cols = 128;
  std::string_view scale_suffix = "_scale_inv";  // after ".weight"
  // Of kIntegers.
  const IntegerLayout* layout = nullptr;
  int64_t bits = 4;          // of a code: 4 or 8; a tensor's shape tells which
  int64_t group_size = 128;  // neighbouring columns under one scale and zero point; 0: whole rows
  int64_t zero_offset = 0;   // added to the stored zero points of a word
  bool has_zeros = true;     // otherwise they are half of the codes' range
  bool has_group_index = false;

  int64_t codes_per_word() const { return 32 / bits; }
  /// "plain", "e4m3, a scale for 128 x 128 weights", "integers as AWQ has them, a scale for 128 columns".
  std::string describe() const;
  friend bool operator==(const SourceFormat&, const SourceFormat&) = default;
};

}  // namespace ferry
