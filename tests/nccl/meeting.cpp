#include "tests/nccl/meeting.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/gloo/gloo_group.h"
#include "comm/local_group.h"
#include "comm/mpi/mpi_group.h"
#include "runtime/base/error.h"

// nccl-tests starts and ends MPI itself, which is MpiRuntime's to do: the linker sends its calls here (--wrap).
extern "C" {
int __wrap_MPI_Init(int* argc, char*** argv);  // NOLINT(bugprone-reserved-identifier)
int __wrap_MPI_Finalize();                     // NOLINT(bugprone-reserved-identifier)
int __real_MPI_Finalize();                     // NOLINT(bugprone-reserved-identifier)
}

namespace ferry::nccl {
namespace {

std::unique_ptr<MpiRuntime> job;

std::string transport() {
  const char* name = std::getenv("FERRY_NCCL_TRANSPORT");
  return name == nullptr ? "" : name;
}

/// One rank's of the groups that threads of this process share.
std::unique_ptr<Group> meet_threads(uint64_t meeting, Rank rank, int size) {
  static std::mutex mutex;
  static std::map<uint64_t, std::vector<std::unique_ptr<Group>>> meetings;
  const std::scoped_lock lock(mutex);
  auto& groups = meetings[meeting];
  if (groups.empty()) groups = make_local_groups(size);
  return std::move(groups.at(static_cast<std::size_t>(rank.value)));
}

}  // namespace

std::unique_ptr<Group> meet(uint64_t meeting, Rank rank, int size) {
  const std::string name = transport();
  const bool among_processes = job != nullptr && job->size() > 1;
  if (among_processes && (size != job->size() || rank != job->rank()))
    throw_invalid("a rank for each of " + std::to_string(job->size()) + " processes and no threads are allowed");
  if (name == (among_processes ? "mpi" : "local"))
    return among_processes ? make_mpi_group(*job) : meet_threads(meeting, rank, size);
  if (name != "gloo")
    throw_invalid("FERRY_NCCL_TRANSPORT is '" + name + "'; allowed: gloo, among threads local, among processes mpi");
  const auto bootstrap = among_processes ? make_mpi_group(*job) : meet_threads(meeting, rank, size);
  auto group = make_gloo_group(*bootstrap, {});
  bootstrap->barrier(bootstrap->now() + std::chrono::seconds(60));  // nobody leaves it while others still exchange addresses
  return group;
}

}  // namespace ferry::nccl

int __wrap_MPI_Init(int*, char***) {
  ferry::nccl::job = std::make_unique<ferry::MpiRuntime>();
  return 0;
}

/// Comes twice: from nccl-tests, and then from the MpiRuntime.
int __wrap_MPI_Finalize() {
  if (const auto ending = std::move(ferry::nccl::job)) return 0;
  return __real_MPI_Finalize();
}
