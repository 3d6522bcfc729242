#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "runtime/base/thread_pool.h"
#include "runtime/base/types.h"
#include "runtime/checkpoint/quantization.h"
#include "runtime/checkpoint/tensor_reader.h"

namespace ferry {

struct PackOptions {
  DType dtype = DType::kBF16;             // weights are rounded to it before they are quantised, as a run in it would
  Quantization quantization;              // of at least one part
  int64_t file_bytes = int64_t{4} << 30;  // of data in a file, where no single tensor is larger
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;  // of what is read; called now and then; may be empty
};

/// Finds, through a reader, every matrix of a checkpoint that is to be quantised, and refuses a checkpoint that is not the
/// model's. The model knows them (quantized_matrices() in runtime/model/weights_loader.h).
using FindMatrices = std::function<std::vector<StoredMatrix>(const Checkpoint& checkpoint, TensorReader& reader)>;

/// What was done.
struct PackSummary {
  int64_t read_bytes = 0;
  int64_t written_bytes = 0;  // of tensors
  int64_t num_files = 0;      // of tensors
};

/// Writes the checkpoint `from` as a folder of packed weights (packed_checkpoint.h) `to`, which must not be there or be empty.
/// Matrices are quantised piece by piece on `pool`, so some 100 MB of memory do for any model. Panels have the bits that
/// loading `from` with the same quantisation in the same dtype gives. Tensors that are not quantised, among them those of other
/// parts such as a vision tower, and the configuration, tokenizer and chat template are copied as they are.
///
/// Throws Error{kInvalidArgument} for a checkpoint that `find_matrices` refuses, one that is packed already, weights that are
/// not finite and a folder with something in it; Error{kResourceExhausted} for a full disk; Error{kFailedPrecondition} or
/// Error{kUnavailable} if something cannot be written. Then nothing is left of what was written.
PackSummary pack_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                            const FindMatrices& find_matrices, ThreadPool& pool, const PackOptions& options);

}  // namespace ferry
