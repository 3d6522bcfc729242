#include "runtime/base/histogram.h"

#include "runtime/base/check.h"

namespace ferry {

Histogram Histogram::merged(std::vector<double> bounds) const {
  Histogram merged(std::move(bounds));
  std::size_t bucket = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    merged.counts_[bucket] += counts_[i];
    if (i < bounds_.size() && bucket < merged.bounds_.size() && bounds_[i] == merged.bounds_[bucket]) ++bucket;
  }
  FERRY_CHECK(bucket == merged.bounds_.size());
  merged.sum_ = sum_;
  return merged;
}

}  // namespace ferry
