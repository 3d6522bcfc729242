#include <mpi.h>
#include <sys/resource.h>

#include <array>
#include <cstdlib>
#include <sstream>

#include "comm/mpi/mpi_group.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

bool is_set(const char* variable) { return std::getenv(variable) != nullptr; }  // NOLINT(concurrency-mt-unsafe)

/// The value of a variable that holds a count; -1 without one.
int count_in(const char* variable) {
  return is_set(variable) ? std::atoi(std::getenv(variable)) : -1;  // NOLINT(concurrency-mt-unsafe)
}

/// Open MPI 4.1 listens for TCP connections on every address of the host unless told otherwise, and a few stray bytes on such a
/// port block it for good. Ranks of one host need none. What somebody has chosen stays. (launch/mpirun.sh says the same to
/// mpirun.)
void keep_to_shared_memory() {
  const int size = count_in("OMPI_COMM_WORLD_SIZE");
  const bool one_host = size > 0 && count_in("OMPI_COMM_WORLD_LOCAL_SIZE") == size;
  if (!one_host || is_set("OMPI_MCA_btl") || is_set("OMPI_MCA_pml")) return;
  setenv("OMPI_MCA_pml", "ob1", 0);         // NOLINT(concurrency-mt-unsafe)
  setenv("OMPI_MCA_btl", "self,vader", 0);  // NOLINT(concurrency-mt-unsafe)
}

/// MPI waits for ever where it cannot open a file. The limit is raised as far as the process may.
void require_descriptors() {
  constexpr rlim_t kEnough = 64;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (raised.rlim_cur >= kEnough && setrlimit(RLIMIT_NOFILE, &raised) == 0) return;
  throw Error(ErrorCode::kResourceExhausted, "[mpi] this process may have " + std::to_string(limit.rlim_cur) +
                                                 " files open (ulimit -n); a rank of a job needs " + std::to_string(kEnough));
}

void check_start(int result, const char* what) {
  if (result != MPI_SUCCESS) {
    throw Error(ErrorCode::kUnavailable, std::string("[mpi] ") + what + " failed with MPI error " + std::to_string(result));
  }
}

}  // namespace

bool MpiRuntime::launched_by_mpirun() {
  // Open MPI, any PMIx launcher, MPICH's and other PMI-1 or PMI-2 launchers, Slurm's srun. SLURM_PROCID alone is also set in a
  // batch script, where the process is not part of a step.
  return is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK") || is_set("PMI_RANK") ||
         (is_set("SLURM_PROCID") && is_set("SLURM_STEP_NUM_TASKS"));
}

int MpiRuntime::launch_rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (is_set(variable)) return std::atoi(std::getenv(variable));  // NOLINT(concurrency-mt-unsafe)
  }
  return 0;
}

bool MpiRuntime::leads_command() {
  const int rank = launch_rank();
  const char* counts = std::getenv("OMPI_APP_CTX_NUM_PROCS");  // NOLINT(concurrency-mt-unsafe): "1 4" of -np 1 A : -np 4 B
  std::istringstream list(counts == nullptr ? "" : counts);
  int first = 0;
  for (int count = 0; first < rank && list >> count;) first += count;
  return first == rank;
}

MpiRuntime::MpiRuntime() {
  int was_initialized = 0;
  MPI_Initialized(&was_initialized);
  if (was_initialized != 0) throw Error(ErrorCode::kFailedPrecondition, "[mpi] MPI is already initialized in this process");
  require_descriptors();
  keep_to_shared_memory();
  int provided = MPI_THREAD_SINGLE;
  check_start(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    throw Error(ErrorCode::kUnimplemented, "[mpi] the MPI library offers thread level " + std::to_string(provided) +
                                               "; MPI_THREAD_SERIALIZED (" + std::to_string(MPI_THREAD_SERIALIZED) +
                                               ") is needed");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  check_start(MPI_Comm_rank(MPI_COMM_WORLD, &rank_.value), "MPI_Comm_rank");
  check_start(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");

  MPI_Comm host = MPI_COMM_NULL;
  check_start(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_.value, MPI_INFO_NULL, &host),
              "MPI_Comm_split_type");
  check_start(MPI_Comm_rank(host, &local_rank_), "MPI_Comm_rank");
  check_start(MPI_Comm_size(host, &local_size_), "MPI_Comm_size");
  MPI_Comm_free(&host);

  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int name_chars = 0;
  check_start(MPI_Get_processor_name(name.data(), &name_chars), "MPI_Get_processor_name");
  host_name_.assign(name.data(), static_cast<std::size_t>(name_chars));
}

MpiRuntime::~MpiRuntime() {
  if (!abandoned_) MPI_Finalize();
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int num_chars = 0;
  if (MPI_Get_library_version(text.data(), &num_chars) != MPI_SUCCESS) return "MPI of an unknown version";
  const std::string version(text.data(), static_cast<std::size_t>(num_chars));
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace ferry
