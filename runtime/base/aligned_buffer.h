#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "runtime/base/memory_use.h"

namespace ferry {

/// Owns `size` bytes at a 64-byte boundary (a cache line, one AVX-512 register). Move-only; contents start as zeros. Of a large
/// one (2 MiB or more) the system gives each page when it is first touched, so what is never used takes no memory. Counts for
/// the use of whoever makes it (runtime/base/memory_use.h).
class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 64;  // bytes

  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size);
  AlignedBuffer(AlignedBuffer&& other) noexcept : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Free {
    std::size_t size;  // bytes of the buffer
    MemoryUse use;     // of a small one
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;  // bytes
};

}  // namespace ferry
