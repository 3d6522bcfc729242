#include "profiler/export/ascend_tensors.h"

#include <cmath>

namespace ferry {
namespace {

constexpr double kMostFlop = 9e18;  // that a whole number holds

AscendTensors describe(const std::vector<TensorFacts>& tensors, const SpanCounts& counts) {
  AscendTensors result;
  for (const TensorFacts& tensor : tensors) {
    const char* const separator = result.types.empty() ? "" : ";";
    std::string dims;
    for (const TensorDim& dim : tensor.dims) dims += (dims.empty() ? "" : ",") + std::to_string(dim.of(counts));
    result.shapes += separator + dims;
    result.types += separator + tensor.type;
    result.formats += separator + std::string("ND");
  }
  if (!tensors.empty()) result.shapes = "\"" + result.shapes + "\"";
  return result;
}

}  // namespace

AscendTensors AscendOperands::inputs(const Slice& slice) const {
  const OperatorFacts* facts = facts_of(slice);
  return facts == nullptr ? AscendTensors{} : describe(facts->inputs, counts_of(*facts, slice));
}

AscendTensors AscendOperands::outputs(const Slice& slice) const {
  const OperatorFacts* facts = facts_of(slice);
  return facts == nullptr ? AscendTensors{} : describe(facts->outputs, counts_of(*facts, slice));
}

double AscendOperands::flop(const Slice& slice) const {
  const OperatorFacts* facts = facts_of(slice);
  return facts == nullptr ? 0 : facts->flop.of(counts_of(*facts, slice));
}

std::string AscendOperands::flop_text(const Slice& slice) const {
  const double operations = flop(slice);
  return operations >= 1 && operations < kMostFlop ? std::to_string(std::llround(operations)) : "N/A";
}

const OperatorFacts* AscendOperands::facts_of(const Slice& slice) const {
  return find_operator(rank_.input.capture.info.model.operators, slice.zone);
}

SpanCounts AscendOperands::counts_of(const OperatorFacts& facts, const Slice& slice) const {
  const int32_t step = steps_.find(slice.step);
  const int64_t sequences = step < 0 ? 1 : rank_.input.timeline.steps[static_cast<std::size_t>(step)].num_sequences;
  return facts.counts(slice.a, slice.b, sequences);
}

}  // namespace ferry
