#include "comm/mpi/host_doorbell.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <mpi.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>
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

constexpr std::size_t kNameBytes = 64;

/// Makes the file `name` of `bytes` zeros that exist: memory that is missing is an error here and not a SIGBUS where it is
/// touched.
/// -1 and a line on stderr where the system has no room.
int make_shared_file(const char* name, std::size_t bytes) {
  const int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
  int error = errno;
  if (file >= 0) {
    do {
      error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
    } while (error == EINTR);
  }
  if (error == 0) return file;
  std::fprintf(stderr, "ferry: no shared memory to wake neighbours with (%zu bytes in /dev/shm: %s); they look now and then\n",
               bytes, std::strerror(error));
  if (file < 0) return -1;
  close(file);
  shm_unlink(name);
  return -1;
}

/// `bytes` zeros that the ranks of `host` share, from its rank 0; null where the system gives none. Collective. No MPI window:
/// at its end MPI waits for all ranks to free one together, also for those that have died.
void* map_shared(MPI_Comm host, std::size_t bytes) {
  int rank = 0;
  MPI_Comm_rank(host, &rank);
  std::array<char, kNameBytes> name{};
  std::snprintf(name.data(), name.size(), "/ferry-%d-%lld", static_cast<int>(getpid()),
                static_cast<long long>(std::chrono::steady_clock::now().time_since_epoch().count()));
  int file = rank == 0 ? make_shared_file(name.data(), bytes) : -1;
  if (rank == 0 && file < 0) name[0] = '\0';
  MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, host);
  if (rank != 0 && name[0] != '\0') file = shm_open(name.data(), O_RDWR, 0);
  void* memory = file < 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  MPI_Barrier(host);
  if (rank == 0 && name[0] != '\0') shm_unlink(name.data());
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

HostDoorbell::HostDoorbell(Rank rank) : rank_(rank) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));  // the kernel reads it as one
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_.value, MPI_INFO_NULL, &host);
  const std::vector<int> host_ranks = ranks_in(host, MPI_COMM_WORLD);
  bells_.assign(host_ranks.size(), nullptr);
  bells_[static_cast<std::size_t>(rank_.value)] = &own_;
  shared_bytes_ = host_ranks.size() * sizeof(Bell);
  shared_ = map_shared(host, shared_bytes_);
  MPI_Comm_free(&host);
  if (shared_ == nullptr) return;
  for (std::size_t r = 0; r < bells_.size(); ++r) {
    // Zeros, which the pages are, make a Bell.
    if (host_ranks[r] != MPI_UNDEFINED) bells_[r] = static_cast<Bell*>(shared_) + host_ranks[r];
  }
}

HostDoorbell::~HostDoorbell() {
  if (shared_ != nullptr) munmap(shared_, shared_bytes_);
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
