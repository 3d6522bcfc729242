#pragma once

#include <cstdint>
#include <string>

#include "runtime/server/batch/batch_run.h"

namespace ferry::batch {

/// What there is to say of a batch while it runs.
struct BatchProgress {
  BatchCounts counts;
  int64_t input_bytes = 0;
  int64_t num_tokens = 0;  // of prompts and completions that this run has computed
  double elapsed_s = 0;
};

/// One line, without its end. On a terminal with a bar.
enum class ProgressForm { kPlain, kBar };
std::string describe(const BatchProgress& progress, ProgressForm form);

/// "1:02:03", "2:03".
std::string duration_text(double seconds);

}  // namespace ferry::batch
