#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "tests/kernels/matrices.h"

// What every way to multiply must do, on a CPU or a device: product_cases.cpp goes through the multipliers of its program.

namespace ferry {

/// A way to multiply what the host has.
class Multiplier {
 public:
  virtual ~Multiplier() = default;

  virtual const std::string& name() const = 0;
  virtual std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights, WeightUse use = WeightUse::kPlain) = 0;
  virtual std::unique_ptr<PackedMatrix> pack(const QuantizedMatrix& weights, WeightUse use = WeightUse::kPlain) = 0;
  virtual void run(const GroupedMatmulArgs& args) = 0;

  void multiply(const MatmulRows& rows, const PackedMatrix& weights, MatrixView out, const ProductFinish& finish = {});
  /// Likewise, over NaNs.
  Matrix multiply(const MatmulRows& rows, const PackedMatrix& weights, DType dtype);
};

/// Those of this program; none where there is no device.
std::vector<Multiplier*> multipliers();

inline constexpr WeightType kInt8{WeightFormat::kInt8, 0};
inline constexpr WeightType int4(int32_t group_size) { return {WeightFormat::kInt4, group_size}; }
inline constexpr WeightType wide(int32_t group_size) { return {WeightFormat::kInt4, group_size, /*is_wide=*/true}; }
inline constexpr WeightType e4m3(int32_t group_size) { return {WeightFormat::kE4M3, group_size}; }

struct ShapeCase {
  int64_t rows, n, k;
  std::string text() const { return std::to_string(rows) + " x " + std::to_string(n) + " x " + std::to_string(k); }
};

struct CodesCase {
  WeightType type;
  int64_t n, k;
  std::string text() const { return weight_type_name(type) + " n " + std::to_string(n) + " k " + std::to_string(k); }
};

/// Random codes of every value, with scales about 2^-8 that need all the mantissa that the type has; some groups are zeros.
QuantizedMatrix random_codes(WeightType type, int64_t n, int64_t k, uint32_t seed);

}  // namespace ferry
