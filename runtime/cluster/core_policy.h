#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ferry {

/// Cores that this process may run on, at least 1.
int available_cores();

/// Equal for processes of one host that may run on the same cores.
std::string place_name(const std::string& host);
/// The host of a place.
std::string host_of_place(const std::string& place);

/// How a rank uses its cores if the user did not say.
struct CorePolicy {
  int cores = 1;  // that this rank may run on
  bool is_coordinator = true;
  bool has_workers = false;       // anywhere
  int ranks_on_cores = 1;         // that may run on these cores, this one too
  int coordinators_on_cores = 1;  // of them

  /// A coordinator takes all cores that it may run on, as workers compute while it waits. A worker takes twice its share: the
  /// busiest worker of a layer then goes on with the cores of those that are done.
  int default_threads() const;
  /// Rows of half a step from which it is computed in two micro-batches, 0 for never: where workers have cores of their own,
  /// they compute the experts of one while the coordinator runs the attention of the other.
  int64_t default_micro_batch() const;
  /// How long idle threads of a pool of `num_threads` may spin: not at all where they share cores, with other ranks or with one
  /// another.
  std::chrono::microseconds thread_spin(int num_threads) const;
};

}  // namespace ferry
