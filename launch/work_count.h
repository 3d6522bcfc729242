#pragma once

#include <cstdint>

#include "runtime/model/config.h"
#include "runtime/model/quantization.h"

namespace ferry {

/// Bytes and operations that the shapes of a model ask for at least, with uniform routing. A multiply-add is two operations.
class WorkCount {
 public:
  WorkCount(const ModelConfig& config, const Quantization& quantization, DType dtype);

  struct Work {
    double bytes = 0;
    double flops = 0;
  };
  /// A decode step of `batch` sequences that hold `past` tokens: weights that are touched once, DeltaNet states read and written,
  /// keys and values read.
  Work decode_step(int64_t batch, double past) const;
  /// A prompt of `length` tokens in pieces of `chunk`; each piece reads the weights that it touches.
  Work prompt(int64_t length, int64_t chunk) const;

 private:
  double experts_hit(double tokens) const;
  double layers_bytes(double tokens) const;
  double token_flops(double keys) const;

  const ModelConfig& config_;
  double trunk_bytes_ = 0;   // of the layers without routed experts
  double expert_bytes_ = 0;  // of one routed expert
  double head_bytes_ = 0;
  double state_bytes_ = 0;  // DeltaNet and convolution state of a sequence, read and written
  double kv_bytes_ = 0;     // keys and values of one token
  double trunk_flops_ = 0;  // of a token: projections, shared and routed experts, the delta rule
  double head_flops_ = 0;
};

}  // namespace ferry
