#include "runtime/model/operator_list.h"

namespace ferry {
TensorFacts OperatorList::activation(std::vector<TensorDim> dims) const {
  return {dtype_ == DType::kF32 ? "FLOAT" : "DT_BF16", std::move(dims)};
}

TensorFacts OperatorList::cached(std::vector<TensorDim> dims) const {
  if (kv_dtype_ == DType::kI8) return {"INT8", std::move(dims)};
  return activation(std::move(dims));
}

TensorFacts OperatorList::weight(std::vector<TensorDim> dims, const std::optional<WeightType>& type) const {
  if (!type) return activation(std::move(dims));
  if (type->format == WeightFormat::kE4M3) return {"FLOAT8_E4M3FN", std::move(dims)};
  return {type->format == WeightFormat::kInt8 ? "INT8" : "INT4", std::move(dims)};
}

void OperatorList::product(Zone zone, int64_t in, int64_t out, const std::optional<WeightType>& type) {
  add({.zone = zone,
       .factors = factors(type),
       .flop = {.per_row = 2 * as_double(in) * as_double(out)},
       .bytes = {.fixed = as_double(in) * as_double(out) * bytes_per_weight(type, dtype_),
                 .per_row = as_double(in + out) * activation_bytes()},
       .inputs = {activation({kRows, in}), weight({in, out}, type)},
       .outputs = {activation({kRows, out})}});
}

void OperatorList::gated_product(Zone zone, int64_t in, int64_t out, const std::optional<WeightType>& type) {
  add({.zone = zone,
       .factors = factors(type),
       .flop = {.per_row = 4 * as_double(in) * as_double(out)},
       .bytes = {.fixed = 2 * as_double(in) * as_double(out) * bytes_per_weight(type, dtype_),
                 .per_row = as_double(in + out) * activation_bytes()},
       .inputs = {activation({kRows, in}), weight({in, 2 * out}, type)},
       .outputs = {activation({kRows, out})}});
}

void OperatorList::grouped_product(Zone zone, int64_t in, int64_t weight_out, int64_t out,
                                   const std::optional<WeightType>& type) {
  add({.zone = zone,
       .factors = factors(type),
       .flop = {.per_row = 2 * as_double(in) * as_double(weight_out)},
       .bytes = {.per_row = as_double(in + out) * activation_bytes(),
                 .per_b = as_double(in) * as_double(weight_out) * bytes_per_weight(type, dtype_)},
       .inputs = {activation({kRows, in}), weight({kB, in, weight_out}, type), indices({kB})},
       .outputs = {activation({kRows, out})}});
}

void OperatorList::elementwise(Zone zone, int64_t width, double flop, std::size_t num_inputs) {
  const double operands = static_cast<double>(num_inputs) + 1;
  add({.zone = zone,
       .flop = {.per_row = as_double(width) * flop},
       .bytes = {.per_row = as_double(width) * operands * activation_bytes()},
       .inputs = std::vector<TensorFacts>(num_inputs, activation({kRows, width})),
       .outputs = {activation({kRows, width})}});
}

void OperatorList::norm(Zone zone, int64_t width, double flop) {
  elementwise(zone, width, flop, 1);
  operators_.back().inputs.push_back(activation({width}));
}

void OperatorList::quantize(Zone zone, int64_t width) {
  constexpr double kFlop = 3;
  add({.zone = zone,
       .flop = {.per_row = as_double(width) * kFlop},
       .bytes = {.per_row = as_double(width) * (activation_bytes() + 1)},
       .inputs = {activation({kRows, width})},
       .outputs = {{"INT8", {kRows, width}}}});
}

void OperatorList::convolution(Zone zone, int64_t channels, int64_t kernel) {
  const double act = activation_bytes();
  add({.zone = zone,
       .flop = {.per_row = 2 * as_double(channels * kernel)},
       .bytes = {.fixed = as_double(channels * kernel) * act,
                 .per_row = 2 * as_double(channels) * act,
                 .per_b = 2 * as_double(channels * (kernel - 1)) * act},
       .inputs = {activation({kRows, channels}), activation({channels, kernel}), activation({kB, channels, kernel - 1})},
       .outputs = {activation({kRows, channels})}});
}

void OperatorList::add(OperatorFacts facts) {
  facts.num_layers = num_layers_;
  facts.rows_per_token = rows_per_token_;
  operators_.push_back(std::move(facts));
}

}  // namespace ferry
