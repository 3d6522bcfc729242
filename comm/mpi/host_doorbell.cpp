#include "comm/mpi/host_doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <ctime>
#include <new>
#include <numeric>

namespace ferry {
namespace {

// std::atomic's own wait is for one process only.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::microseconds limit) {
  const timespec time{limit.count() / 1'000'000, limit.count() % 1'000'000 * 1000};
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &time, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0); }

// [ranks of `job`]: the rank of each in `host`, or MPI_UNDEFINED.
std::vector<int> ranks_in(MPI_Comm host, MPI_Comm job) {
  MPI_Group job_group = MPI_GROUP_NULL;
  MPI_Group host_group = MPI_GROUP_NULL;
  MPI_Comm_group(job, &job_group);
  MPI_Comm_group(host, &host_group);
  int size = 0;
  MPI_Comm_size(job, &size);
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> in_host(all.size());
  MPI_Group_translate_ranks(job_group, size, all.data(), host_group, in_host.data());
  MPI_Group_free(&job_group);
  MPI_Group_free(&host_group);
  return in_host;
}

// The first place for a Bell at or after `memory`. MPI aligns a rank's part of a window to 8 bytes only; windows are mapped at whole pages,
// so every process finds the same place.
template <class T>
T* align_up(void* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  return reinterpret_cast<T*>((address + alignof(T) - 1) / alignof(T) * alignof(T));
}

}  // namespace

HostDoorbell::HostDoorbell(MPI_Comm job) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));  // the kernel reads it as one
  MPI_Comm_rank(job, &rank_);
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(job, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host);
  MPI_Comm_set_errhandler(host, MPI_ERRORS_RETURN);
  const std::vector<int> host_ranks = ranks_in(host, job);
  bells_.assign(host_ranks.size(), nullptr);
  bells_[static_cast<std::size_t>(rank_)] = &own_;

  // Window and communicator stay with MPI until it finalizes: freeing them is collective, and a rank may leave because another
  // is gone.
  void* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  constexpr MPI_Aint kBytes = sizeof(Bell) + alignof(Bell);
  if (MPI_Win_allocate_shared(kBytes, 1, MPI_INFO_NULL, host, static_cast<void*>(&memory), &window) != MPI_SUCCESS) return;
  new (align_up<Bell>(memory)) Bell;
  MPI_Barrier(host);
  for (std::size_t r = 0; r < bells_.size(); ++r) {
    if (host_ranks[r] == MPI_UNDEFINED) continue;
    MPI_Aint bytes = 0;
    int unit = 0;
    MPI_Win_shared_query(window, host_ranks[r], &bytes, &unit, static_cast<void*>(&memory));
    bells_[r] = align_up<Bell>(memory);
  }
}

void HostDoorbell::ring(Rank to) {
  Bell* bell = bells_[static_cast<std::size_t>(to.value)];
  if (bell == nullptr) return;
  bell->rings.fetch_add(1);
  if (bell->is_asleep.load() != 0) futex_wake(bell->rings);
}

uint32_t HostDoorbell::count() const { return mine().rings.load(); }

bool HostDoorbell::is_waiting(Rank rank) const {
  const Bell* bell = bells_[static_cast<std::size_t>(rank.value)];
  return bell != nullptr && bell->is_waiting.load() != 0;
}

HostDoorbell::Waiting::Waiting(HostDoorbell& doorbell) : bell_(doorbell.mine()) { bell_.is_waiting.store(1); }
HostDoorbell::Waiting::~Waiting() { bell_.is_waiting.store(0); }

void HostDoorbell::wait(uint32_t seen, std::chrono::microseconds limit) {
  mine().is_asleep.store(1);
  futex_wait(mine().rings, seen, limit);
  mine().is_asleep.store(0);
}

}  // namespace ferry
