#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "kernels/stream.h"

namespace ferry::test {

/// A golden model and how it is loaded.
struct ModelCase {
  std::string model;  // folder of tests/golden
  DType dtype;
  std::string quantize;  // as of --quantize
};

std::string case_name(const ModelCase& c);
void PrintTo(const ModelCase& c, std::ostream* out);

/// Logits of a step's rows, and behind them those of the MTP layer, if there is one.
struct StepLogits {
  DType dtype{};
  std::vector<std::byte> bytes;

  friend bool operator==(const StepLogits&, const StepLogits&) = default;
  std::vector<float> values() const;
};

/// The steps of two prompts side by side, in two pieces, then of decode rows with drafts that are held, replayed and forgotten,
/// computed on `stream`.
std::vector<StepLogits> run_decoder_steps(const ModelCase& c, Stream& stream);

}  // namespace ferry::test
