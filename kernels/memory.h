#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "runtime/base/check.h"

// Where tensors live. A backend computes on what is in its memory: the CPU on the host's, a GPU on its own, which the host must
// not touch. Addresses and views say where they point.

namespace ferry {

enum class Space : uint8_t { kHost, kDevice };

/// Where Ts begin in a space. What may be touched only there: implementations of ops use raw(), everyone else host().
template <class T>
class Address {
 public:
  constexpr Address() = default;
  constexpr Address(std::nullptr_t) {}            // NOLINT: implicit
  constexpr Address(T* host) : address_(host) {}  // NOLINT: implicit
  constexpr Address(T* address, Space space) : address_(address), space_(space) {}
  constexpr operator Address<const T>() const  // NOLINT: implicit
      requires(!std::is_const_v<T>) {
    return {address_, space_};
  }

  Space space() const { return space_; }
  /// For what runs where the address lives.
  constexpr T* raw() const { return address_; }
  /// For the host; dies if it is not the host's.
  T* host() const {
    FERRY_CHECK(space_ == Space::kHost) << "the host may not touch a device's memory";
    return address_;
  }
  explicit constexpr operator bool() const { return address_ != nullptr; }
  Address operator+(int64_t count) const { return {address_ + count, space_}; }

 private:
  T* address_ = nullptr;
  Space space_ = Space::kHost;
};

/// Owns bytes of a memory, at a 64-byte boundary at least. Move-only.
class Storage {
 public:
  Storage() = default;
  /// `owner` lets go of them.
  Storage(std::byte* data, std::size_t size, Space space, std::shared_ptr<void> owner)
      : owner_(std::move(owner)), data_(data), size_(size), space_(space) {}
  Storage(Storage&& other) noexcept { *this = std::move(other); }
  Storage& operator=(Storage&& other) noexcept {
    owner_ = std::move(other.owner_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    space_ = other.space_;
    return *this;
  }

  Address<std::byte> address() { return {data_, space_}; }
  Address<const std::byte> address() const { return {data_, space_}; }
  std::size_t size() const { return size_; }
  Space space() const { return space_; }

 private:
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  Space space_ = Space::kHost;
};

/// Hands out a space's bytes. Any thread may call any method.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual Space space() const = 0;
  /// Zeros. Throws std::bad_alloc, or Error{kResourceExhausted} that says what there is.
  virtual Storage allocate(std::size_t size) = 0;
  /// Fills bytes that nothing works with yet: weights, tables. Returns when they are there.
  virtual void fill(Address<std::byte> to, std::span<const std::byte> from) = 0;
};

/// The memory of this process.
Memory& host_memory();

/// Numbers in a backend's memory.
template <class T>
class Array {
 public:
  Array() = default;
  /// Zeros.
  Array(Memory& memory, int64_t size) : storage_(memory.allocate(static_cast<std::size_t>(size) * sizeof(T))), size_(size) {}
  Array(Memory& memory, std::span<const T> values) : Array(memory, std::ssize(values)) {
    memory.fill(storage_.address(), std::as_bytes(values));
  }

  Address<T> data() { return {reinterpret_cast<T*>(storage_.address().raw()), storage_.space()}; }
  Address<const T> data() const { return {reinterpret_cast<const T*>(storage_.address().raw()), storage_.space()}; }
  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  Storage storage_;
  int64_t size_ = 0;
};

}  // namespace ferry
