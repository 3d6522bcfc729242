#pragma once

#include <cstdint>

#include "kernels/op_limits.h"
#include "moe/reply_writer.h"
#include "runtime/checkpoint/quantization.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/compute_device.h"
#include "runtime/model/config.h"
#include "runtime/model/layer_runner.h"
#include "runtime/schedule/speculation.h"

// What a rank takes of the memory of a device, told before anything large is loaded.

namespace ferry {

/// Bytes, of rank 0.
struct DeviceNeeds {
  int64_t weights = 0;   // packed, and the embedding
  int64_t caches = 0;    // of --memory
  int64_t rows = 0;      // of a step, and what ops need besides
  int64_t pictures = 0;  // the vision tower, what it works with, and its cache

  int64_t total() const { return weights + caches + rows + pictures; }
};

/// The weights of rank 0, with the routed experts if there are no workers. `quantization` is resolved.
int64_t device_weight_bytes(const ModelConfig& config, const Quantization& quantization, DType dtype, int64_t num_workers);

/// What a step's rows and what is computed of them take, counted by making all of it in a memory that has no bytes.
struct StepShape {
  DType dtype = DType::kBF16;
  Quantization quantization;
  DecoderLimits limits;
  Speculation speculation;
  int64_t num_workers = 0;
  int64_t max_keys = 0;     // of a sequence
  int64_t delta_chunk = 1;  // rows
};
int64_t step_row_bytes(const ModelConfig& config, const StepShape& shape);

/// The largest arguments that ops get in such steps; what a device needs for them besides is its own to say.
OpLimits op_limits(const ModelConfig& config, const StepShape& shape);

/// Throws Error{kResourceExhausted} that names the device, each of the needs with its option, and what is there, if they are
/// more.
void require_device_memory(const ComputeDevice& device, const DeviceNeeds& needs);

/// Of an expert worker that holds `num_local_experts` of every layer: its weights, and what it computes of a request, counted
/// as the rows of a step.
struct WorkerNeeds {
  int64_t weights = 0;
  int64_t rows = 0;
};
WorkerNeeds worker_needs(const ModelConfig& config, const Quantization& quantization, int64_t num_local_experts,
                         const ReplyWriter::Options& replies);
/// Likewise.
void require_device_memory(const ComputeDevice& device, const WorkerNeeds& needs);

}  // namespace ferry
