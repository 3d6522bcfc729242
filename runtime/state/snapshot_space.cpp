#include "runtime/state/snapshot_space.h"

#include <utility>

#include "kernels/stream.h"
#include "runtime/base/check.h"
#include "runtime/base/memory_use.h"

namespace ferry {

SnapshotSpace::SnapshotSpace(RecurrentState& state, Stream& stream, int64_t num_snapshots)
    : state_(state),
      stream_(stream),
      snapshot_bytes_(RecurrentState::snapshot_bytes(state.options())),
      snapshots_(static_cast<std::size_t>(num_snapshots)) {}

Address<std::byte> SnapshotSpace::place(int64_t snapshot) {
  Storage& storage = snapshots_.at(static_cast<std::size_t>(snapshot));
  if (storage.size() == 0) {
    storage = spare();
    num_bytes_ += snapshot_bytes_;
  }
  is_saving_ = !stream_.is_on_host();
  return storage.address();
}

void SnapshotSpace::restore(int64_t snapshot, int64_t slot) {
  const Storage& storage = snapshots_.at(static_cast<std::size_t>(snapshot));
  FERRY_CHECK_EQ(static_cast<int64_t>(storage.size()), snapshot_bytes_) << ": snapshot " << snapshot << " was never saved";
  await_saved();  // the host's bytes are read at once
  state_.restore(stream_, slot, storage.address());
}

Storage SnapshotSpace::take(int64_t snapshot) {
  Storage& storage = snapshots_.at(static_cast<std::size_t>(snapshot));
  FERRY_CHECK_EQ(static_cast<int64_t>(storage.size()), snapshot_bytes_) << ": snapshot " << snapshot << " was never saved";
  await_saved();
  num_bytes_ -= snapshot_bytes_;
  return std::exchange(storage, {});
}

void SnapshotSpace::put(int64_t snapshot, Storage bytes) {
  FERRY_CHECK_EQ(static_cast<int64_t>(bytes.size()), snapshot_bytes_);
  Storage& storage = snapshots_.at(static_cast<std::size_t>(snapshot));
  if (storage.size() > 0) {
    await_saved();
    give_back(std::exchange(storage, {}));
    num_bytes_ -= snapshot_bytes_;
  }
  storage = std::move(bytes);
  num_bytes_ += snapshot_bytes_;
}

Storage SnapshotSpace::spare() {
  if (spare_.empty()) {
    const MemoryUseScope use(MemoryUse::kSnapshots);
    return host_memory().allocate(static_cast<std::size_t>(snapshot_bytes_));
  }
  Storage bytes = std::move(spare_.back());
  spare_.pop_back();
  return bytes;
}

void SnapshotSpace::give_back(Storage bytes) { spare_.push_back(std::move(bytes)); }

/// What a device is still to bring.
void SnapshotSpace::await_saved() {
  if (std::exchange(is_saving_, false)) stream_.wait(stream_.submit());
}

}  // namespace ferry
