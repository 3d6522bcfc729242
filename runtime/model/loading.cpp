#include "runtime/model/loading.h"

#include <algorithm>
#include <mutex>

#include "runtime/base/error.h"

namespace ferry {

void run_jobs(ThreadPool& pool, int64_t num_jobs, const std::function<int64_t(int64_t)>& body, const LoadOptions& options) {
  constexpr int64_t kJobsPerBatch = 64;
  std::mutex mutex;
  for (int64_t first = 0; first < num_jobs; first += kJobsPerBatch) {  // so that neighbours in the file are read together
    parallel_for_throwing(pool, std::min(kJobsPerBatch, num_jobs - first), [&](int64_t i, int) {
      const int64_t bytes = body(first + i);
      const std::scoped_lock lock(mutex);
      if (options.progress) options.progress(bytes);
    });
  }
}

std::string text_prefix(const TensorReader& reader) {
  for (const char* prefix : {"model.language_model.", "model."}) {
    if (reader.has(std::string(prefix) + "embed_tokens.weight")) return prefix;
  }
  throw_invalid("checkpoint: tensor model.language_model.embed_tokens.weight (or model.embed_tokens.weight) is missing");
}

std::string layer_prefix(const std::string& prefix, int64_t layer) { return prefix + "layers." + std::to_string(layer) + "."; }

StoredRows rows_from(StoredRows stored, int64_t first, int64_t count) {
  stored.first_row += first;
  stored.rows = count;
  return stored;
}

}  // namespace ferry
