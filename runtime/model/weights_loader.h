#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "runtime/base/available_memory.h"
#include "runtime/checkpoint/checkpoint_packer.h"
#include "runtime/checkpoint/packed_checkpoint.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_reader.h"
#include "runtime/model/config.h"
#include "runtime/model/weights.h"

// From the tensors of a checkpoint, found by the names of its architecture, to packed weights.

namespace ferry {

/// How weights are read.
struct LoadOptions {
  DType dtype = DType::kBF16;  // of the run; weights stored otherwise are converted
  WeightPlan weights;          // what is quantised, and whether it is packed already
  bool check_finite = false;   // refuse NaN and infinity, naming tensor and element
  /// Throws Error{kResourceExhausted} with `what` if `bytes` of the memory for packed weights are not there.
  std::function<void(int64_t bytes, const std::string& what)> require_memory = ferry::require_memory;
  std::function<void(int64_t done_bytes)> progress;  // called by one loading thread at a time; may be empty
  std::function<void(int64_t bytes)> expect = {};    // called before any of so many bytes are read; may be empty
};

/// Whether a tensor is of what may be skipped: the MTP layer, the vision tower, and angles that follow from the config.
bool is_of_other_part(std::string_view tensor_name);

/// Why there is no MTP layer to load, in the words that go on after "but "; empty if there is one, with the matrices in panels
/// that `weights` says are.
std::string lacks_mtp(const Checkpoint& checkpoint, const ModelConfig& config, const WeightPlan& weights);

/// Reads everything but the routed experts. Throws Error{kInvalidArgument} for a tensor that is missing, has another shape or
/// a type that its format does not have, or that nothing in the config accounts for (is_of_other_part() aside).
/// `checkpoint` must outlive the result (the embedding and panels stay in the mapped file). Calls pool.
TrunkWeights load_trunk(const Checkpoint& checkpoint, const ModelConfig& config, const Backend& backend, ThreadPool& pool,
                        const LoadOptions& options);

/// `asked` with the parts that "native" stands for: those of which the checkpoint holds codes, in their type. Throws
/// Error{kInvalidArgument} for native where it holds none, or where no product takes them.
Quantization resolve_quantization(const Checkpoint& checkpoint, const ModelConfig& config, const Quantization& asked);

/// The matrices that `quantization` makes codes: the trunk's, then the experts' by layer, each expert's gates and ups before
/// its down. Throws as load_trunk does, and for rows that cannot be quantised. `reader` reads `checkpoint`.
std::vector<StoredMatrix> find_quantized(const Checkpoint& checkpoint, const ModelConfig& config,
                                         const Quantization& quantization, TensorReader& reader);

/// find_quantized() of the checkpoint in `dir`, whose config is read when it is called: for pack_checkpoint.
FindMatrices quantized_matrices(const std::filesystem::path& dir, const Quantization& quantization);

}  // namespace ferry
