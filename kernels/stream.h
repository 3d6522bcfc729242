#pragma once

#include "kernels/memory.h"
#include "runtime/base/thread_pool.h"

namespace ferry {

class Backend;

/// Work for one device, in the order in which it is handed in: ops take a stream and their arguments. The CPU's stream runs
/// each op at once, on the caller's thread and those of the pool. One thread at a time.
class Stream {
 public:
  /// Both outlive it.
  Stream(const Backend& backend, ThreadPool& pool) : backend_(backend), pool_(pool) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// What computes.
  const Backend& backend() const { return backend_; }
  /// Where what it works on lies: the backend's.
  Memory& memory() const;
  ThreadPool& pool() const { return pool_; }

 private:
  const Backend& backend_;
  ThreadPool& pool_;
};

}  // namespace ferry
