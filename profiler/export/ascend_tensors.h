#pragma once

#include <string>
#include <vector>

#include "profiler/export/ascend_rank.h"
#include "profiler/operator_facts.h"
#include "profiler/report/timeline/step_slices.h"

namespace ferry {

/// Tensors as the readers take them apart: one after the other with ';' between. All empty if nothing is known.
struct AscendTensors {
  std::string shapes;   // in quotes: "\"4,128;128,64\""
  std::string types;    // "DT_BF16;DT_BF16"
  std::string formats;  // "ND;ND"
};

/// What operators of a rank work on and how much they do.
class AscendOperands {
 public:
  /// `rank` must outlive this.
  explicit AscendOperands(const AscendRank& rank) : rank_(rank), steps_(rank.input.timeline) {}

  AscendTensors inputs(const Slice& slice) const;
  AscendTensors outputs(const Slice& slice) const;
  /// Operations that the slice needs at least; 0 if that is not known.
  double flop(const Slice& slice) const;
  /// The same as a whole number for a file, "N/A" if it is not known or more than a whole number holds.
  std::string flop_text(const Slice& slice) const;

 private:
  const OperatorFacts* facts_of(const Slice& slice) const;
  SpanCounts counts_of(const OperatorFacts& facts, const Slice& slice) const;

  const AscendRank& rank_;
  const StepIndex steps_;
};

}  // namespace ferry
