#include "profiler/operator_facts.h"

#include <algorithm>
#include <cmath>

namespace ferry {

SpanCounts OperatorFacts::counts(uint32_t a, uint32_t b, int64_t num_sequences) const {
  SpanCounts counts{.rows = static_cast<double>(a), .b = static_cast<double>(b)};
  const auto sequences = static_cast<double>(std::max<int64_t>(num_sequences, 1));
  if (a > 0) counts.keys = row_keys_per_b * counts.b * std::min(sequences / counts.rows, 1.0);
  return counts;
}

int64_t TensorDim::of(const SpanCounts& counts) const {
  switch (kind) {
    case Kind::kFixed: return size;
    case Kind::kRows: return std::llround(counts.rows);
    case Kind::kB: return std::llround(counts.b);
    case Kind::kKeys: return static_cast<int64_t>(counts.keys);
  }
  return 0;
}

const OperatorFacts* find_operator(const std::vector<OperatorFacts>& operators, Zone zone) {
  const auto found =
      std::find_if(operators.begin(), operators.end(), [zone](const OperatorFacts& o) { return o.zone == zone; });
  return found == operators.end() ? nullptr : &*found;
}

}  // namespace ferry
