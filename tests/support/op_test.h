#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/op_table.h"
#include "kernels/tensor.h"
#include "tests/support/test_stream.h"
#include "tests/support/vulkan_table.h"

// What the tests of the ops share: matrices with padded rows, random contents and the list of (implementation, dtype) pairs.

namespace ferry::test {

/// A matrix on the heap without a spare byte at the end, so that the address sanitizer sees reads past it. `padding` elements
/// lie between rows; padding_intact() says whether anybody wrote there.
class TestMatrix {
 public:
  TestMatrix(DType dtype, int64_t rows, int64_t cols, int64_t padding = 0)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        row_stride_(cols + padding),
        bytes_(static_cast<std::size_t>(rows > 0 ? ((rows - 1) * row_stride_ + cols) * dtype_bytes(dtype) : 0), kUntouched) {}

  MatrixView view() { return {bytes_.data(), dtype_, rows_, cols_, row_stride_}; }
  ConstMatrixView view() const { return {bytes_.data(), dtype_, rows_, cols_, row_stride_}; }
  float get(int64_t r, int64_t c) const {
    return dtype_ == DType::kF32 ? view().row<float>(r)[c] : to_float(view().row<bfloat16>(r)[c]);
  }
  void set(int64_t r, int64_t c, float x) {
    if (dtype_ == DType::kF32) {
      view().row<float>(r)[c] = x;
    } else {
      view().row<bfloat16>(r)[c] = to_bfloat16(x);
    }
  }
  TestMatrix& fill(float x) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) set(r, c, x);
    }
    return *this;
  }
  /// Normally distributed values.
  TestMatrix& fill_random(uint32_t seed, float deviation = 1.0f) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0.0f, deviation);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) set(r, c, normal(engine));
    }
    return *this;
  }
  bool padding_intact() const {
    for (int64_t r = 0; r + 1 < rows_; ++r) {
      const std::byte* end = view().row_bytes(r) + cols_ * dtype_bytes(dtype_);
      for (; end != view().row_bytes(r + 1); ++end) {
        if (*end != kUntouched) return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::byte kUntouched{0x5a};
  DType dtype_;
  int64_t rows_, cols_, row_stride_;
  std::vector<std::byte> bytes_;
};

inline std::vector<float> random_floats(std::size_t count, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& x : values) x = normal(engine);
  return values;
}

/// Round to nearest, ties to even, by arithmetic instead of by bits: 8 significant bits. For finite, normal values.
inline double nearest_bfloat16(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}
/// What a value becomes when an op rounds it to `dtype`; f32 is left in double.
inline double nearest(DType dtype, double x) { return dtype == DType::kF32 ? x : nearest_bfloat16(x); }

/// One implementation and one dtype of activations.
struct OpCase {
  const OpTable* table;
  DType dtype;
};

inline std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  std::vector<const OpTable*> tables = available_op_tables();
  if (const OpTable* device = vulkan_table()) tables.push_back(device);
  for (const OpTable* table : tables) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) cases.push_back({table, dtype});
  }
  return cases;
}

inline std::string op_case_name(const testing::TestParamInfo<OpCase>& info) {
  return std::string(info.param.table->name) + "_" + dtype_name(info.param.dtype);
}

inline void PrintTo(const OpCase& op_case, std::ostream* out) {
  *out << op_case.table->name << " " << dtype_name(op_case.dtype);
}

/// Runs once per implementation and dtype. Ops run on three threads, and on one where a test compares the two.
class OpTest : public testing::TestWithParam<OpCase> {
 protected:
  const OpTable& table() const { return *GetParam().table; }
  DType dtype() const { return GetParam().dtype; }
  bool is_f32() const { return dtype() == DType::kF32; }

  TestStream stream_{3};
  TestStream serial_stream_{1};
};

}  // namespace ferry::test
