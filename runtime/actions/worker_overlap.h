#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/report/lost_time/exchanges.h"
#include "runtime/actions/replayed_steps.h"

namespace ferry {

/// What workers of one host that are at work at once cost each other, cores or memory, and how much sooner the last of them
/// were done if all had as much to do.
class WorkerOverlap {
 public:
  /// `exchanges` and `calls` are of `input`, as find_exchanges() and find_expert_calls() return them.
  WorkerOverlap(const ReportInput& input, const Exchanges& exchanges, std::span<const ExpertCall> calls);

  /// What share of the time in which another worker of its host is at work a worker loses to that: 0 where each has what it
  /// needs, and at most 1 / workers of a host, where all together do what one does. 0 too where noise explains as much.
  double slowing() const { return slowing_; }

  /// Whether calls are told no worse by workers that are equally fast, and slow each other down, than by each one's own speed:
  /// who has less to do has another at work beside it all the time, and is no slower for that.
  bool are_alike() const { return are_alike_; }

  /// Seconds by which the last reply of exchanges.list[i] had been posted sooner, were work even and each worker begun when the
  /// last rows came. Less than 0 where work is more even than that.
  double imbalance(std::size_t i) const;

 private:
  /// A worker's part of an exchange; seconds of the coordinator's clock.
  struct Share {
    std::size_t rank = 0;
    std::size_t host = 0;          // workers of one host have the same
    double arrived = 0, took = 0;  // its rows; 0: it had none
    double touched = 0, rows = 0;  // of its call
    double factor = 1;             // how many times as long as a middle one its rank takes
    double expected = 0;           // what it usually takes for such a call; 0: that was not recorded
  };

  std::span<const Share> shares_of(std::size_t exchange) const {
    return std::span(shares_).subspan(firsts_[exchange], firsts_[exchange + 1] - firsts_[exchange]);
  }
  static double others_of(std::span<const Share> all);
  /// Seconds in which others of its host are at work while `share` is, each counted.
  static double overlap_of(const Share& share, std::span<const Share> all, double Share::*seconds);
  struct Fit {
    double slowing = 0, error = 0;  // and its standard error
    double left = 0;                // squares of what the fit does not explain
  };
  void expect(bool are_alike);
  Fit fit(bool are_alike);
  void find_slowing();

  std::vector<Share> shares_;        // by exchange, then rank
  std::vector<std::size_t> firsts_;  // [exchanges + 1] into shares_
  double slowing_ = 0;
  bool are_alike_ = true;
};

}  // namespace ferry
