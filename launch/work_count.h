#pragma once

#include <cstdint>
#include <vector>

#include "launch/roof_share.h"
#include "profiler/operator_facts.h"

namespace ferry {

/// What the coordinator must read and compute at least, from what the model says of its operators and from how many experts its
/// tokens really went to. Weights, states, keys and values count as read, rows that pass from operator to operator do not: they
/// stay in the caches. Operations are multiply-adds alone. With workers the routed experts are theirs and count nothing here.
class WorkCount {
 public:
  enum class Experts : uint8_t { kHere, kOnWorkers };
  WorkCount(std::vector<OperatorFacts> operators, Experts experts);

  /// `num_experts_read`: over all layers, and over all pieces of a prompt, the distinct experts that were given rows.
  ///
  /// A decode step of `batch` sequences that hold `past` tokens: weights that are touched once, states read and written, keys
  /// and values read.
  Work decode_step(int64_t batch, double past, double num_experts_read) const;
  /// A prompt of `length` tokens behind `past` others, in pieces of `chunk`; each piece reads the weights that it touches, and
  /// the keys and values before it.
  Work prompt(int64_t past, int64_t length, int64_t chunk, double num_experts_read) const;

 private:
  struct Step;
  Work count(const Step& step, bool is_head) const;

  std::vector<OperatorFacts> operators_;
};

}  // namespace ferry
