#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace ferry {

/// XXH3, 64 bits: tells contents apart, keeps no secret.
uint64_t content_hash(std::span<const std::byte> bytes, uint64_t seed = 0);

/// The same of bytes that come piece by piece.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ferry
