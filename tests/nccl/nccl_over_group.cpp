// NCCL's calls in host memory, as nccl-tests makes them, over a Group. All of them are done when the call, or the outermost
// ncclGroupEnd, returns; streams mean nothing. One communicator a thread.

#include <nccl.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <utility>

#include "tests/nccl/cuda/cuda_runtime.h"
#include "tests/nccl/meeting.h"
#include "tests/nccl/reduction.h"

struct ncclComm {
  std::unique_ptr<ferry::Group> group;
  std::deque<ferry::nccl::Reduction> made_reductions = {};  // the i-th is called ncclNumOps + i
};

namespace ferry::nccl {
namespace {

constexpr std::chrono::seconds kCallTime{60};
constexpr int kTag = 0;  // NCCL has none: messages between two ranks keep their order

/// A call of this thread, to be made when its outermost group ends.
struct Call {
  enum class Kind { kSend, kReceive, kCollective };
  Kind kind = Kind::kCollective;
  ncclComm_t comm = nullptr;
  std::span<std::byte> memory;  // what is sent, or where to
  Rank peer;
  std::function<void()> run;  // of a collective
};

thread_local int group_depth = 0;
thread_local std::vector<Call> group_calls;
thread_local std::string last_error;

std::span<std::byte> bytes_at(const void* memory, std::size_t bytes) {
  return {static_cast<std::byte*>(const_cast<void*>(memory)), bytes};
}

Deadline deadline_of(const Group& group) { return group.now() + kCallTime; }

/// What the suite has to notice: FERRY_NCCL_LIAR=1 makes the last rank see a bit of what it gets otherwise.
void lie_about(const Group& group, std::span<std::byte> got) {
  static const bool lies = std::getenv("FERRY_NCCL_LIAR") != nullptr;
  if (lies && group.rank().value == group.size() - 1 && !got.empty()) got[got.size() / 2] ^= std::byte{1};
}

/// Sends and receives of one communicator; those with itself are copied.
void exchange(std::span<const Call> calls) {
  Group& group = *calls.front().comm->group;
  std::deque<std::span<std::byte>> to_self;
  group.group_start();
  for (const Call& call : calls) {
    const bool is_send = call.kind == Call::Kind::kSend;
    if (call.peer == group.rank()) {
      if (is_send) to_self.push_back(call.memory);
    } else if (is_send) {
      group.send(call.memory, call.peer, kTag);
    } else {
      group.recv(call.memory, call.peer, kTag);
    }
  }
  group.group_end(deadline_of(group));
  for (const Call& call : calls) {
    if (call.kind == Call::Kind::kSend) continue;
    if (call.peer == group.rank()) {
      if (to_self.empty() || to_self.front().size() != call.memory.size())
        throw_invalid("a rank receives from itself what it does not send");
      std::memmove(call.memory.data(), to_self.front().data(), call.memory.size());
      to_self.pop_front();
    }
    lie_about(group, call.memory);
  }
}

/// Sends and receives that follow each other go together, as they may wait for each other.
void run_calls(std::span<const Call> calls) {
  while (!calls.empty()) {
    std::size_t count = 0;
    while (count < calls.size() && calls[count].kind != Call::Kind::kCollective && calls[count].comm == calls.front().comm)
      ++count;
    if (count > 0) {
      exchange(calls.first(count));
    } else {
      count = 1;
      calls.front().run();
    }
    calls = calls.subspan(count);
  }
}

/// Makes the call, or keeps it until the outermost group ends.
void make_call(Call call) {
  if (call.kind != Call::Kind::kCollective && call.memory.empty()) return;
  group_calls.push_back(std::move(call));
  if (group_depth > 0) return;
  const std::vector<Call> calls = std::exchange(group_calls, {});
  run_calls(calls);
}

void make_collective(ncclComm_t comm, std::span<std::byte> got, const std::function<void(Group&, Deadline)>& run) {
  make_call({.comm = comm, .memory = got, .peer = Rank{}, .run = [comm, got, run] {
               run(*comm->group, deadline_of(*comm->group));
               lie_about(*comm->group, got);
             }});
}

Reduction reduction_of(ncclComm_t comm, ncclRedOp_t op, ncclDataType_t type, std::size_t count) {
  Reduction reduction{.op = op, .type = type, .count = count};
  if (op < ncclNumOps) return reduction;
  const auto made = static_cast<std::size_t>(op - ncclNumOps);
  if (made >= comm->made_reductions.size()) throw_invalid("ncclRedOp_t is " + std::to_string(op) + ", which nobody made");
  reduction.op = ncclNumOps;
  reduction.scalar = comm->made_reductions[made].scalar;
  return reduction;
}

ncclResult_t result_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnavailable: return ncclRemoteError;
    case ErrorCode::kDeadlineExceeded: return ncclSystemError;
    case ErrorCode::kInvalidArgument: return ncclInvalidArgument;
    default: return ncclInternalError;
  }
}

template <class Body>
ncclResult_t answer(const Body& body) {
  try {
    body();
    return ncclSuccess;
  } catch (const Error& error) {
    last_error = error.what();
    std::fprintf(stderr, "nccl: %s\n", error.what());
    return result_of(error.code());
  }
}

/// Communicators that were not destroyed: nccl-tests leaves those of its threads to the end of the process.
std::set<std::unique_ptr<ncclComm>> all_comms;
std::mutex all_comms_mutex;

void forget(ncclComm_t comm) {
  const std::scoped_lock lock(all_comms_mutex);
  std::erase_if(all_comms, [comm](const auto& one) { return one.get() == comm; });
}

}  // namespace
}  // namespace ferry::nccl

namespace host = ferry::nccl;
using ferry::Rank;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) { return result == ncclSuccess ? "no error" : host::last_error.c_str(); }
const char* ncclGetLastError(ncclComm_t) { return host::last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<uint64_t> num_ids = 0;
  const uint64_t meeting = ++num_ids;
  *id = {};
  std::memcpy(id->internal, &meeting, sizeof(meeting));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t*) {
  return host::answer([&] {
    uint64_t meeting = 0;
    std::memcpy(&meeting, id.internal, sizeof(meeting));
    auto made = std::make_unique<ncclComm>(ncclComm{.group = host::meet(meeting, Rank{rank}, nranks)});
    if (rank == 0) std::printf("# %d ranks over %s\n", nranks, made->group->name());
    *comm = made.get();
    const std::scoped_lock lock(host::all_comms_mutex);
    host::all_comms.insert(std::move(made));
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  host::forget(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->group->abort();
  return ncclCommDestroy(comm);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->group->size();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->group->rank().value;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->group->async_error().empty() ? ncclSuccess : ncclRemoteError;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclMemFree(void* memory) {
  std::free(memory);
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t, void*, size_t, void**) { return ncclSuccess; }
ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return ncclSuccess; }

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type, ncclScalarResidence_t,
                                      ncclComm_t comm) {
  return host::answer([&] {
    *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(comm->made_reductions.size()));
    std::memcpy(comm->made_reductions.emplace_back().scalar.data(), scalar, host::element_bytes(type));
  });
}

/// Calls that wait for the end of a group hold what they need of it.
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t comm) {
  comm->made_reductions.pop_back();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++host::group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--host::group_depth > 0) return ncclSuccess;
  return host::answer([] {
    const std::vector<host::Call> calls = std::exchange(host::group_calls, {});
    host::run_calls(calls);
  });
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t) {
  return host::answer([&] {
    host::make_call({.kind = host::Call::Kind::kSend,
                     .comm = comm,
                     .memory = host::bytes_at(data, count * host::element_bytes(type)),
                     .peer = Rank{peer},
                     .run = {}});
  });
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t) {
  return host::answer([&] {
    host::make_call({.kind = host::Call::Kind::kReceive,
                     .comm = comm,
                     .memory = host::bytes_at(data, count * host::element_bytes(type)),
                     .peer = Rank{peer},
                     .run = {}});
  });
}

ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t) {
  return host::answer([&] {
    const auto got = host::bytes_at(recv, count * host::element_bytes(type));
    host::make_collective(comm, got, [=](ferry::Group& group, ferry::Deadline deadline) {
      if (group.rank().value == root) std::memmove(recv, send, got.size());
      group.broadcast(got, Rank{root}, deadline);
    });
  });
}

ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t) {
  return host::answer([&] {
    const auto part = host::bytes_at(send, count * host::element_bytes(type));
    const auto got = host::bytes_at(recv, part.size() * static_cast<size_t>(comm->group->size()));
    host::make_collective(comm, got, [=](ferry::Group& group, ferry::Deadline deadline) {
      const std::vector<std::byte> own(part.begin(), part.end());  // it may lie in what is received
      group.all_gather(own, got, deadline);
    });
  });
}

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t) {
  return host::answer([&] {
    const host::Reduction reduction = host::reduction_of(comm, op, type, count);
    const auto got = host::bytes_at(recv, reduction.bytes());
    host::make_collective(comm, got, [=](ferry::Group& group, ferry::Deadline deadline) {
      if (op == ncclSum && type == ncclFloat32) {
        std::memmove(recv, send, got.size());
        group.all_reduce_sum({static_cast<float*>(recv), count}, deadline);
        return;
      }
      std::vector<std::byte> parts(got.size() * static_cast<size_t>(group.size()));
      group.all_gather(host::contribution(reduction, host::bytes_at(send, got.size())), parts, deadline);
      host::reduce_in_rank_order(reduction, parts, group.size(), got);
    });
  });
}

ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t) {
  return host::answer([&] {
    const host::Reduction reduction = host::reduction_of(comm, op, type, count);
    const bool is_root = comm->group->rank().value == root;
    const auto got = host::bytes_at(recv, is_root ? reduction.bytes() : 0);
    host::make_collective(comm, got, [=](ferry::Group& group, ferry::Deadline deadline) {
      const auto own = host::contribution(reduction, host::bytes_at(send, reduction.bytes()));
      const auto num_ranks = static_cast<size_t>(group.size());
      std::vector<std::byte> parts(is_root ? own.size() * num_ranks : 0);
      // Everybody's to the root, nothing to others.
      std::vector<int64_t> send_counts(num_ranks), recv_counts(num_ranks), recv_offsets(num_ranks);
      send_counts[static_cast<size_t>(root)] = std::ssize(own);
      for (size_t i = 0; is_root && i < num_ranks; ++i) {
        recv_counts[i] = std::ssize(own);
        recv_offsets[i] = static_cast<int64_t>(i) * std::ssize(own);
      }
      const std::vector<int64_t> send_offsets(num_ranks);
      group.all_to_all_v({own, send_counts, send_offsets, parts, recv_counts, recv_offsets}, deadline);
      if (is_root) host::reduce_in_rank_order(reduction, parts, group.size(), got);
    });
  });
}

ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t) {
  return host::answer([&] {
    const host::Reduction reduction = host::reduction_of(comm, op, type, count);
    const auto got = host::bytes_at(recv, reduction.bytes());
    host::make_collective(comm, got, [=](ferry::Group& group, ferry::Deadline deadline) {
      const auto num_ranks = static_cast<size_t>(group.size());
      const auto own = host::contribution(reduction, host::bytes_at(send, got.size() * num_ranks));
      std::vector<std::byte> parts(own.size());
      const std::vector<int64_t> counts(num_ranks, std::ssize(got));
      std::vector<int64_t> offsets(num_ranks);
      for (size_t i = 0; i < num_ranks; ++i) offsets[i] = static_cast<int64_t>(i) * std::ssize(got);
      group.all_to_all_v({own, counts, offsets, parts, counts, offsets}, deadline);
      host::reduce_in_rank_order(reduction, parts, group.size(), got);
    });
  });
}

}  // extern "C"
