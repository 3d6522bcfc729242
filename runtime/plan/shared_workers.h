#pragma once

#include <cstdint>

// Several coordinators in front of the same workers: each works on a layer by itself, then waits for its turn and for its rows.
// A closed queue with one server (mean value analysis, Reiser and Lavenberg 1980) whose service takes the same time each time:
// who comes while the workers are busy meets half of what they are at on average.
//
// Rows are merged where, when the workers turn to a request, another one waits that is of the same layer. The arrival theorem:
// one that leaves finds the queue as it is with one coordinator less, so with Q there, busy for a share u, Q - u others wait
// behind the one that is taken. Two coordinators alone leave nobody behind: only both at the same instant are merged.
//
// Where all ranks are on one host, a worker has to get a core first, and requests come meanwhile: each other coordinator then
// waits, too, with the share of its time that it is at the workers. Nothing is done at the same time as anything else.

namespace ferry {

/// One layer of a coordinator, seconds.
struct SharedWork {
  int64_t coordinators = 1;
  bool is_together = false;  // all on the same cores
  double own_s = 0;          // until its rows are with the workers, and after they are back; of all of them, if together
  double service_s = 0;      // of its rows alone
  double service_two_s = 0;  // of two coordinators' rows together
  double same_layer = 0;     // the chance that one who waits is at the same layer
};

/// What comes of it.
struct SharedTurn {
  double layer_s = 0;       // own work, waiting and service
  double wait_s = 0;        // of that, beyond own work and service of its rows alone
  double merged_share = 0;  // of the answers
  double worker_use = 0;    // share of the time in which the workers are busy
};

/// Merging as the queue has it.
SharedTurn estimate_turn(const SharedWork& work);
/// None is merged.
SharedTurn unmerged_turn(const SharedWork& work);

/// The chance that a coordinator that waits is at the same layer of `num_layers`, where each goes through them by itself.
double same_layer_chance(int64_t num_layers);

}  // namespace ferry
