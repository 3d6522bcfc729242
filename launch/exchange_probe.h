#pragma once

#include <cstdint>

#include "launch/probe_rank.h"
#include "runtime/plan/curve.h"

// What messages between ranks of this host take: the product's links and sockets, and processes in the place of ranks.

namespace ferry {

/// Bytes from 1 KiB to 8 MiB both ways, an eighth out and the rest back, as rows of 8 experts travel: to `workers` processes
/// at once, each with its own socket, hub and share of the bytes; who waits takes what comes first, as the dispatcher does.
/// Each size is verified before it is timed: the error names the size. Takes about half a second. This process has one thread.
/// Throws Error{kInternal} for bytes that came back wrong, {kUnavailable} if sockets or processes cannot be had.
Curve measure_exchange(ProbeSockets kind, int64_t workers);

}  // namespace ferry
