#pragma once

#include "kernels/backend.h"

// A host on which nothing starts as zeros.

namespace ferry::test {

/// Bytes of the host, of which each is 0xFF: NaN in f32 and bf16, -1 in integers.
class PoisonedMemory final : public Memory {
 public:
  Space space() const override { return Space::kHost; }
  Storage allocate(std::size_t size) override;
  void fill(Address<std::byte> to, std::span<const std::byte> from) override { host_memory().fill(to, from); }
};

/// The backend that select_backend("auto", "auto", dtype) gives, in poisoned memory.
class PoisonedBackend {
 public:
  explicit PoisonedBackend(DType dtype);
  const Backend& backend() const { return backend_; }

 private:
  PoisonedMemory memory_;
  Backend backend_;
};

/// Fills the calling thread's working memory, `num_floats` of each kind, with NaN.
void poison_scratch(int64_t num_floats);

}  // namespace ferry::test
