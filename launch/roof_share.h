#pragma once

namespace ferry {

/// Bytes read and operations done; a multiply-add is two. Operations on codes of 8 bits are counted apart: they have a roof of
/// their own.
struct Work {
  double bytes = 0;
  double flops = 0;       // of plain factors
  double code_flops = 0;  // of quantised ones

  double all_flops() const { return flops + code_flops; }
  friend Work operator*(const Work& work, double times) {
    return {work.bytes * times, work.flops * times, work.code_flops * times};
  }
};

/// What the machine can do at best.
struct Roofs {
  double read_bytes_per_s = 0;
  double flops_per_s = 0;
  double code_flops_per_s = 0;

  /// The roof of `work`'s operations as they are mixed.
  double mixed_flops_per_s(const Work& work) const {
    return work.all_flops() / (work.flops / flops_per_s + work.code_flops / code_flops_per_s);
  }
};

/// The better of each.
Roofs best_of(const Roofs& x, const Roofs& y);

/// How near a rate comes to the roofs: 1 is a roof itself.
struct RoofShare {
  double read = 0;
  double flops = 0;

  double nearer() const { return read > flops ? read : flops; }
};
RoofShare share_of_roof(const Work& work_of_token, double tokens_per_s, const Roofs& roofs);

/// Shares above this are impossible: a roof is measured as too low or the work is counted as too much. What lies between 1 and
/// this is the error of measuring: rates and roofs are measured one after the other, on a host that may be faster a moment
/// later.
inline constexpr double kMostShare = 1.05;

}  // namespace ferry
