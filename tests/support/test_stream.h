#pragma once

#include <chrono>

#include "kernels/backend.h"

namespace ferry::test {

/// A stream with threads of its own. Its backend is the best that runs here; a table's ops can be called with it, whichever
/// table that is.
class TestStream {
 public:
  explicit TestStream(int num_threads, std::chrono::microseconds spin = {})
      : pool_(num_threads, spin), stream_(best_backend(), pool_) {}
  operator Stream&() { return stream_; }  // NOLINT: implicit

 private:
  static const Backend& best_backend() {
    static const Backend backend = select_backend("auto", "auto", DType::kF32);
    return backend;
  }

  ThreadPool pool_;
  Stream stream_;
};

}  // namespace ferry::test
