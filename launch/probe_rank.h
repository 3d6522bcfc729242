#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "runtime/base/file_descriptor.h"

namespace ferry {

enum class ProbeSockets { kHost, kTcp };  // AF_UNIX, as ranks of one host have them; TCP over the loopback device

/// Two connected sockets. Throws Error{kUnavailable} if the system gives none.
std::pair<FileDescriptor, FileDescriptor> connected_probe_sockets(ProbeSockets kind);

/// A process in the place of a rank, for what is measured: it shares what this one has in memory, and has one socket. To
/// go from one process to another takes a core longer than from thread to thread. To be made while this process has one thread.
class ProbeRank {
 public:
  /// What it does until its link ends; the counter is seen by both processes. It ends with the process: what it throws, and a
  /// process that ends, the other end of the socket notices.
  using Work = std::function<void(FileDescriptor socket, std::atomic<int64_t>& counter)>;
  /// Throws Error{kUnavailable} if the system gives no process.
  ProbeRank(FileDescriptor socket, const Work& work);
  /// The other end of its socket should be closed: waits until it has ended, or ends it.
  ~ProbeRank();
  ProbeRank(const ProbeRank&) = delete;
  ProbeRank& operator=(const ProbeRank&) = delete;

  int64_t counter() const { return counter_->load(); }

 private:
  std::atomic<int64_t>* counter_ = nullptr;  // in a page of its own
  pid_t process_ = -1;
};

}  // namespace ferry
