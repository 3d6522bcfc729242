#pragma once

#include <cstdint>

#include "launch/roof_share.h"
#include "runtime/checkpoint/quantization.h"
#include "runtime/model/config.h"

namespace ferry {

/// What the coordinator must read and compute at least, from the shapes of a model and from how many experts its tokens really
/// went to. With workers the routed experts are theirs and count nothing here.
class WorkCount {
 public:
  enum class Experts : uint8_t { kHere, kOnWorkers };
  WorkCount(const ModelConfig& config, const Quantization& quantization, DType dtype, Experts experts);

  /// `num_experts_read`: over all layers, and over all pieces of a prompt, the distinct experts that were given rows.
  ///
  /// A decode step of `batch` sequences that hold `past` tokens: weights that are touched once, DeltaNet states read and
  /// written, keys and values read.
  Work decode_step(int64_t batch, double past, double num_experts_read) const;
  /// A prompt of `length` tokens in pieces of `chunk`; each piece reads the weights that it touches.
  Work prompt(int64_t length, int64_t chunk, double num_experts_read) const;

 private:
  Work rows(double tokens, double keys) const;

  Work step_;                // bytes of a step whatever its rows, operations of a row; without lm_head
  Work head_;                // likewise, of lm_head
  double expert_bytes_ = 0;  // of one routed expert
  double state_bytes_ = 0;   // DeltaNet and convolution state of a sequence, read and written
  double kv_bytes_ = 0;      // keys and values of one token
  double key_flops_ = 0;     // of a row and a key that it attends to
};

}  // namespace ferry
