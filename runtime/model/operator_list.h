#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/weight_format.h"
#include "profiler/operator_facts.h"
#include "runtime/base/types.h"
#include "runtime/checkpoint/quantization.h"

namespace ferry {

/// Sizes as the costs are counted.
inline double as_double(int64_t value) { return static_cast<double>(value); }

/// Where the parts of a model write down what their operators cost (profiler/operator_facts.h).
class OperatorList {
 public:
  static constexpr TensorDim::Kind kRows = TensorDim::Kind::kRows, kB = TensorDim::Kind::kB, kKeys = TensorDim::Kind::kKeys;

  OperatorList(DType dtype, const Quantization& quantization, DType kv_dtype)
      : dtype_(dtype), quantization_(quantization), kv_dtype_(kv_dtype) {}

  /// What is added from here on is in so many layers.
  void in_layers(int64_t num_layers) { num_layers_ = num_layers; }
  /// What is added from here on has so many rows for each of the step's.
  void rows_per_token(int64_t num_rows) { rows_per_token_ = num_rows; }
  const Quantization& quantization() const { return quantization_; }
  double activation_bytes() const { return static_cast<double>(dtype_bytes(dtype_)); }

  DType kv_dtype() const { return kv_dtype_; }

  TensorFacts activation(std::vector<TensorDim> dims) const;
  /// Rows of a KV cache.
  TensorFacts cached(std::vector<TensorDim> dims) const;
  static TensorFacts fp32(std::vector<TensorDim> dims) { return {"FLOAT", std::move(dims)}; }
  static TensorFacts indices(std::vector<TensorDim> dims) { return {"INT32", std::move(dims)}; }

  /// rows x [in] times [in, out]; `type` of the weights.
  void product(Zone zone, int64_t in, int64_t out, const std::optional<WeightType>& type = std::nullopt);
  /// A product with two results a pair of which becomes one of `out`.
  void gated_product(Zone zone, int64_t in, int64_t out, const std::optional<WeightType>& type);
  /// One matrix [in, weight_out] for each of b experts.
  void grouped_product(Zone zone, int64_t in, int64_t weight_out, int64_t out, const std::optional<WeightType>& type);
  /// Of rows of `width` elements, each of which takes `flop` operations; `num_inputs` such rows go in and one comes out.
  void elementwise(Zone zone, int64_t width, double flop, std::size_t num_inputs);
  /// The same with a weight of `width` beside one input.
  void norm(Zone zone, int64_t width, double flop);
  /// Rows become codes of 8 bits.
  void quantize(Zone zone, int64_t width);
  /// A depthwise convolution; b is sequences, each with the history of its inputs.
  void convolution(Zone zone, int64_t channels, int64_t kernel);
  /// Anything else; num_layers and rows_per_token are filled in.
  void add(OperatorFacts facts);

  std::vector<OperatorFacts> take() { return std::move(operators_); }

 private:
  TensorFacts weight(std::vector<TensorDim> dims, const std::optional<WeightType>& type) const;
  Factors factors(const std::optional<WeightType>& type) const {
    return takes_codes(type) ? Factors::kCodes : Factors::kValues;
  }

  DType dtype_;
  Quantization quantization_;
  DType kv_dtype_;
  int64_t num_layers_ = 1;
  int64_t rows_per_token_ = 1;
  std::vector<OperatorFacts> operators_;
};

}  // namespace ferry
