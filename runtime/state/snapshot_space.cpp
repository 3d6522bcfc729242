#include "runtime/state/snapshot_space.h"

#include "kernels/stream.h"
#include "runtime/base/check.h"

namespace ferry {

SnapshotSpace::SnapshotSpace(RecurrentState& state, Stream& stream, int64_t num_snapshots)
    : state_(state),
      stream_(stream),
      snapshot_bytes_(RecurrentState::snapshot_bytes(state.options())),
      snapshots_(static_cast<std::size_t>(num_snapshots)) {}

Address<std::byte> SnapshotSpace::place(int64_t snapshot) {
  Storage& storage = snapshots_.at(static_cast<std::size_t>(snapshot));
  if (storage.size() == 0) {
    storage = host_memory().allocate(static_cast<std::size_t>(snapshot_bytes_));
    num_bytes_ += snapshot_bytes_;
  }
  is_saving_ = !stream_.is_on_host();
  return storage.address();
}

void SnapshotSpace::restore(int64_t snapshot, int64_t slot) {
  const Storage& storage = snapshots_.at(static_cast<std::size_t>(snapshot));
  FERRY_CHECK_EQ(static_cast<int64_t>(storage.size()), snapshot_bytes_) << ": snapshot " << snapshot << " was never saved";
  if (is_saving_) stream_.wait(stream_.submit());  // the host's bytes are read at once
  is_saving_ = false;
  state_.restore(stream_, slot, storage.address());
}

}  // namespace ferry
