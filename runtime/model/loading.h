#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/base/thread_pool.h"
#include "runtime/checkpoint/tensor_reader.h"
#include "runtime/model/weights_loader.h"

// What the loaders of the trunk's and of the experts' weights share.

namespace ferry {

/// Runs body(i), which returns the bytes that it has read, on the pool and reports each to options.progress. Rethrows the first
/// error.
void run_jobs(ThreadPool& pool, int64_t num_jobs, const std::function<int64_t(int64_t)>& body, const LoadOptions& options);

/// The prefix of the text decoder's tensors: "model.language_model." in a vision-language checkpoint, "model." in a text one.
std::string text_prefix(const TensorReader& reader);
std::string layer_prefix(const std::string& prefix, int64_t layer);

/// Rows [first, first + count) of `stored`.
StoredRows rows_from(StoredRows stored, int64_t first, int64_t count);

}  // namespace ferry
