#pragma once

#include <span>
#include <vector>

#include "runtime/model/block_step.h"

namespace ferry {

/// A batch's rows on their way through what has a recurrent state, cut where states are to be saved: all sequences up to their
/// first save, then those that have one up to their second, and so on. A chunk form cuts there anyway, so no bit depends on it.
///
///   rows      0 ‥ 63 | 64 ‥ 99     100 ‥ 227 | 228 ‥ 291 | 292 ‥ 299
///   sequence  A                     B
///   wave      0      | 1            0         | 1         | 2           saves behind rows 63, 227 and 291
///
/// Kept from batch to batch, so that nothing is allocated once it has seen the largest.
class StateWaves {
 public:
  /// Of a batch whose saves are in order.
  void cut(const MicroBatch& batch);

  std::size_t num_waves() const { return num_waves_; }
  /// A wave's part of each sequence that it has; the first has them all, in order.
  std::span<const SequenceSpan> spans(std::size_t wave) const { return waves_[wave].spans; }
  /// What they save behind them.
  std::span<const StateSave> saves(std::size_t wave) const { return waves_[wave].saves; }
  /// Of things that a batch has one of for each sequence, those of a wave's.
  template <class T>
  std::span<const T> choose(std::size_t wave, std::span<const T> all, std::vector<T>& chosen) const {
    chosen.clear();
    for (const std::size_t sequence : waves_[wave].sequences) chosen.push_back(all[sequence]);
    return chosen;
  }

 private:
  struct Wave {
    std::vector<std::size_t> sequences;
    std::vector<SequenceSpan> spans;
    std::vector<StateSave> saves;
  };
  Wave& wave(std::size_t idx);

  std::vector<Wave> waves_;
  std::size_t num_waves_ = 0;
};

}  // namespace ferry
