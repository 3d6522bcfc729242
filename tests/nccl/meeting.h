#pragma once

#include <cstdint>
#include <memory>

#include "comm/group.h"

namespace ferry::nccl {

/// The group in which rank `rank` of `size` meets the others that know `meeting`. FERRY_NCCL_TRANSPORT says what carries it:
/// "local" or "gloo" between threads of this process, "mpi" or "gloo" between the processes of a job that mpirun started.
/// Blocks until all are there, but for "local". Throws Error{kInvalidArgument} for anything else.
std::unique_ptr<Group> meet(uint64_t meeting, Rank rank, int size);

}  // namespace ferry::nccl
