#include "runtime/base/content_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ferry {

uint64_t content_hash(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

struct ContentHash::State {
  XXH3_state_t hash;
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->hash); }

ContentHash::~ContentHash() = default;

void ContentHash::add(std::span<const std::byte> bytes) { XXH3_64bits_update(&state_->hash, bytes.data(), bytes.size()); }

uint64_t ContentHash::value() const { return XXH3_64bits_digest(&state_->hash); }

}  // namespace ferry
