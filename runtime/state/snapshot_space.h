#pragma once

#include <cstdint>
#include <vector>

#include "runtime/state/recurrent_state.h"

namespace ferry {

/// Snapshots of recurrent states on the host, from which sequences begin that share a prefix: the scheduler's ids index them.
/// The memory of one is allocated when it is first used, and kept: what is never needed takes none.
///
/// What was saved comes back to the bit. Not thread-safe.
class SnapshotSpace {
 public:
  /// For snapshots of `state`, which outlives it with the stream.
  SnapshotSpace(RecurrentState& state, Stream& stream, int64_t num_snapshots);

  /// Where the step that is recorded next may save a state: RecurrentState::snapshot_bytes() bytes. Throws std::bad_alloc.
  Address<std::byte> place(int64_t snapshot);
  /// Makes a slot's state the saved one.
  void restore(int64_t snapshot, int64_t slot);

  /// Hands over the bytes of a saved state, which then has none here.
  Storage take(int64_t snapshot);
  /// Makes bytes that were handed over the saved state.
  void put(int64_t snapshot, Storage bytes);
  /// Bytes for a state, and bytes that are of no use any more.
  Storage spare();
  void give_back(Storage bytes);

  /// Bytes of the snapshots that were used so far, but for those that were handed over.
  int64_t num_bytes() const { return num_bytes_; }

 private:
  void await_saved();

  RecurrentState& state_;
  Stream& stream_;
  const int64_t snapshot_bytes_;
  int64_t num_bytes_ = 0;
  bool is_saving_ = false;          // a device may still have to bring what was saved last
  std::vector<Storage> snapshots_;  // [num_snapshots]
  std::vector<Storage> spare_;      // given back
};

}  // namespace ferry
