#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/memory.h"
#include "kernels/tensor.h"
#include "runtime/base/thread_pool.h"

namespace ferry {

class Backend;

/// Work for one device, in the order in which it is handed in: ops take a stream and their arguments. This one is the CPU's,
/// which runs each op at once, on the caller's thread and those of the pool; a device's records, and runs what was submitted.
///
/// What an op's arguments point to must stay as it is until it has run, but for arrays in spans, which are read at once. The
/// host looks at results through HostRows and writes through Mirrors (host_rows.h). One thread at a time.
class Stream {
 public:
  /// A place in the order: all that was handed in before it was submitted.
  enum class Event : uint64_t {};

  /// Both outlive it.
  Stream(const Backend& backend, ThreadPool& pool) : backend_(backend), pool_(pool) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// What computes.
  const Backend& backend() const { return backend_; }
  /// Where what it works on lies: the backend's.
  Memory& memory() const;
  /// Whether the host may look at that itself, once it is computed.
  bool is_on_host() const { return memory().space() == Space::kHost; }
  ThreadPool& pool() const { return pool_; }

  /// Copies bytes from either space to either. Those of the host are read at once.
  virtual void copy(Address<const std::byte> from, Address<std::byte> to, std::size_t size);
  /// Zeros.
  virtual void clear(Address<std::byte> to, std::size_t size);

  /// Lets everything that was handed in run.
  virtual Event submit() { return Event{}; }
  /// Returns when it has.
  virtual void wait(Event) {}

 private:
  const Backend& backend_;
  ThreadPool& pool_;
};

/// Copies a matrix to one of the same shape and dtype, from either space to either.
void copy_rows(Stream& stream, ConstMatrixView from, MatrixView to);

}  // namespace ferry
