#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ferry {

/// How often values fell between fixed bounds. One thread at a time; a copy is a snapshot.
class Histogram {
 public:
  /// Upper bounds of the buckets, each above the one before; values above the last one have a bucket of their own.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  /// A bucket has the values up to its bound, the bound included.
  void observe(double value) {
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    ++counts_[static_cast<std::size_t>(bucket)];
    sum_ += value;
  }

  /// The same values in the buckets of `bounds`, each of which is one of this histogram's.
  Histogram merged(std::vector<double> bounds) const;

  std::span<const double> bounds() const { return bounds_; }
  std::span<const int64_t> counts() const { return counts_; }  // [bounds + 1] of each bucket alone
  double sum() const { return sum_; }                          // of all values

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

}  // namespace ferry
