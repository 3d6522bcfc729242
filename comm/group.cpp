#include "comm/group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"

namespace ferry {
namespace {

// One tag per collective suffices: every rank calls the collectives in the same order, and messages with one tag keep theirs.
enum CollectiveTag : int {
  kBarrierTag = Group::kNumTags,
  kBroadcastTag,
  kAllGatherTag,
  kAllToAllTag,
  kReduceTag,
};

using Ops = std::vector<std::unique_ptr<PendingOp>>;

void copy_bytes(std::span<const std::byte> from, std::byte* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

void check_peer(const Group& group, Rank peer, int tag) {
  FERRY_CHECK(peer.value >= 0 && peer.value < group.size()) << " rank " << peer.value << " of " << group.size();
  FERRY_CHECK(peer != group.rank()) << " rank " << peer.value << " would send to itself";
  FERRY_CHECK(tag >= 0 && tag < Group::kNumTags) << " tag " << tag;
}

}  // namespace

void Group::wait_all(Ops& ops, Deadline deadline) {
  for (const auto& op : ops) wait(*op, deadline);
  ops.clear();
}

void Group::group_start() {
  FERRY_CHECK(!in_group_) << " group_start inside an open group";
  in_group_ = true;
  group_ops_.clear();
}

// When posting fails, the caller unwinds and frees the memory of what was posted before, so that must go first.
void Group::post(const std::function<Posted()>& start) {
  try {
    group_ops_.push_back(start());
  } catch (...) {
    group_ops_.clear();
    in_group_ = false;
    throw;
  }
}

void Group::send(std::span<const std::byte> data, Rank to, int tag) {
  FERRY_CHECK(in_group_) << " send outside group_start and group_end";
  check_peer(*this, to, tag);
  post([&] { return Posted{isend(data, to, tag), false, nullptr}; });
}

void Group::recv(std::span<std::byte> data, Rank from, int tag, std::size_t* received) {
  FERRY_CHECK(in_group_) << " recv outside group_start and group_end";
  check_peer(*this, from, tag);
  const Fit fit = received == nullptr ? Fit::kExact : Fit::kUpTo;
  post([&] { return Posted{irecv(data, from, tag, fit), true, received}; });
}

void Group::group_end(Deadline deadline) {
  FERRY_CHECK(in_group_) << " group_end without group_start";
  in_group_ = false;
  // A local, so that a throw drops the unfinished operations: the group has failed and will not touch their memory again.
  const std::vector<Posted> ops = std::move(group_ops_);
  group_ops_.clear();
  for (const Posted& posted : ops) {
    if (!posted.is_recv) continue;
    const std::size_t bytes = wait(*posted.op, deadline);
    if (posted.received != nullptr) *posted.received = bytes;
  }
  // Last, as a peer's receive of them may be what it waits for first.
  for (const Posted& posted : ops) {
    if (!posted.is_recv) wait(*posted.op, deadline);
  }
}

// Everyone tells everyone, so that each rank's deadline names the rank that is silent and not the one that waits for it.
void Group::barrier(Deadline deadline) {
  Ops ops;
  for (int r = 0; r < size(); ++r) {
    if (Rank{r} != rank()) ops.push_back(irecv({}, Rank{r}, kBarrierTag, Fit::kExact));
  }
  for (int r = 0; r < size(); ++r) {
    if (Rank{r} != rank()) ops.push_back(isend({}, Rank{r}, kBarrierTag));
  }
  wait_all(ops, deadline);
}

void Group::broadcast(std::span<std::byte> data, Rank root, Deadline deadline) {
  FERRY_CHECK(root.value >= 0 && root.value < size()) << " root " << root.value << " of " << size();
  Ops ops;
  if (rank() != root) {
    ops.push_back(irecv(data, root, kBroadcastTag, Fit::kExact));
  } else {
    for (int r = 0; r < size(); ++r) {
      if (Rank{r} != rank()) ops.push_back(isend(data, Rank{r}, kBroadcastTag));
    }
  }
  wait_all(ops, deadline);
}

void Group::all_gather(std::span<const std::byte> data, std::span<std::byte> out, Deadline deadline) {
  const std::size_t part_bytes = data.size();
  FERRY_CHECK_EQ(out.size(), part_bytes * static_cast<std::size_t>(size()));
  Ops ops;
  for (int r = 0; r < size(); ++r) {
    const auto part = out.subspan(part_bytes * static_cast<std::size_t>(r), part_bytes);
    if (Rank{r} == rank()) {
      copy_bytes(data, part.data());
    } else {
      ops.push_back(irecv(part, Rank{r}, kAllGatherTag, Fit::kExact));
    }
  }
  for (int r = 0; r < size(); ++r) {
    if (Rank{r} != rank()) ops.push_back(isend(data, Rank{r}, kAllGatherTag));
  }
  wait_all(ops, deadline);
}

void Group::all_to_all_v(const AllToAllV& args, Deadline deadline) {
  const auto num_ranks = static_cast<std::size_t>(size());
  FERRY_CHECK_EQ(args.send_counts.size(), num_ranks);
  FERRY_CHECK_EQ(args.send_offsets.size(), num_ranks);
  FERRY_CHECK_EQ(args.recv_counts.size(), num_ranks);
  FERRY_CHECK_EQ(args.recv_offsets.size(), num_ranks);
  const auto slice = [](auto all, int64_t offset, int64_t count) {
    FERRY_CHECK(offset >= 0 && count >= 0 && offset + count <= static_cast<int64_t>(all.size()))
        << " offset " << offset << " count " << count << " of " << all.size() << " bytes";
    return all.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count));
  };
  Ops ops;
  const auto self = static_cast<std::size_t>(rank().value);
  for (std::size_t r = 0; r < num_ranks; ++r) {
    const auto part = slice(args.recv, args.recv_offsets[r], args.recv_counts[r]);
    if (r != self) ops.push_back(irecv(part, Rank{static_cast<int>(r)}, kAllToAllTag, Fit::kUpTo));
  }
  for (std::size_t r = 0; r < num_ranks; ++r) {
    const auto part = slice(args.send, args.send_offsets[r], args.send_counts[r]);
    if (r != self) {
      ops.push_back(isend(part, Rank{static_cast<int>(r)}, kAllToAllTag));
    } else {
      FERRY_CHECK_LE(args.send_counts[r], args.recv_counts[r]);
      copy_bytes(part, args.recv.data() + args.recv_offsets[r]);
    }
  }
  wait_all(ops, deadline);
}

void Group::all_reduce_sum(std::span<float> data, Deadline deadline) {
  const Rank root{0};
  std::vector<std::vector<float>> parts(static_cast<std::size_t>(size()));  // outlives the operations, also when a wait throws
  Ops ops;
  if (rank() != root) {
    ops.push_back(isend(std::as_bytes(data), root, kReduceTag));
    wait_all(ops, deadline);
  } else {
    for (int r = 1; r < size(); ++r) {
      auto& part = parts[static_cast<std::size_t>(r)];
      part.resize(data.size());
      ops.push_back(irecv(std::as_writable_bytes(std::span(part)), Rank{r}, kReduceTag, Fit::kExact));
    }
    wait_all(ops, deadline);
    for (int r = 1; r < size(); ++r) {
      const auto& part = parts[static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < data.size(); ++i) data[i] += part[i];
    }
  }
  broadcast(std::as_writable_bytes(data), root, deadline);
}

}  // namespace ferry
