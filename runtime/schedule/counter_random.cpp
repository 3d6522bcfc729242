#include "runtime/schedule/counter_random.h"

namespace ferry {
namespace {

// The multipliers and the key increments (golden ratio, sqrt(3) - 1) of the paper's philox4x32.
constexpr uint64_t kMultiplier0 = 0xD2511F53U;
constexpr uint64_t kMultiplier1 = 0xCD9E8D57U;
constexpr uint32_t kKeyStep0 = 0x9E3779B9U;
constexpr uint32_t kKeyStep1 = 0xBB67AE85U;
constexpr int kNumRounds = 10;

uint32_t low_word(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high_word(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kNumRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {high_word(product1) ^ counter[1] ^ key[0], low_word(product1), high_word(product0) ^ counter[3] ^ key[1],
               low_word(product0)};
    key[0] += kKeyStep0;
    key[1] += kKeyStep1;
  }
  return counter;
}

double counter_uniform(uint64_t seed, uint64_t index) {
  const auto words = philox4x32({low_word(index), high_word(index), 0, 0}, {low_word(seed), high_word(seed)});
  const uint64_t bits = (static_cast<uint64_t>(words[1]) << 32) | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace ferry
