#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "runtime/plan/curve.h"

// What messages between ranks of this host take: the product's links, its sockets, and threads in the place of ranks.

namespace ferry {

enum class ProbeSockets { kHost, kTcp };  // AF_UNIX, as ranks of one host have them; TCP over the loopback device

/// Two connected sockets. Throws Error{kUnavailable} if the system gives none.
std::pair<FileDescriptor, FileDescriptor> connected_probe_sockets(ProbeSockets kind);

/// Bytes from 1 KiB to 8 MiB both ways, an eighth out and the rest back, as rows of 8 experts travel: to `workers` threads at
/// once, each with its own sockets, hub and share of the bytes; who waits takes what comes first, as the dispatcher does. Every
/// size is verified before it is timed: the error names the size. Takes about half a second. Throws Error{kInternal} for bytes
/// that came back wrong, {kUnavailable} if sockets or threads cannot be had.
Curve measure_exchange(ProbeSockets kind, int64_t workers);

}  // namespace ferry
