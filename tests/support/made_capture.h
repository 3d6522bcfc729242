#pragma once

#include "profiler/capture.h"

namespace ferry {

/// A small made-up run: steps of a model with alternating DeltaNet and attention layers, experts on `world_size` - 1 workers.
/// Everything follows from the options; times are whole microseconds of the coordinator's clock.
struct MadeRun {
  int32_t world_size = 3;
  int32_t num_layers = 4;
  int32_t num_prefill_steps = 2;
  int32_t num_decode_steps = 5;
  int64_t slow_rank = -1;  // its experts take `slow_factor` times as long
  double slow_factor = 1;
  int64_t hot_expert = -1;  // of layer 1: gets half of the layer's tokens
  int64_t far_rank = -1;    // its rows and its replies are under way for `far_us` longer
  int64_t far_us = 0;
  double clock_offset_ns = 0;  // of every worker's clock, with drift, known exactly to its alignment
  double clock_drift = 0;
  double clock_bound_ns = 0;
};

Capture make_made_capture(const MadeRun& run = {});

}  // namespace ferry
