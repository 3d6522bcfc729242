#pragma once

#include <cstdint>

namespace ferry::test {

/// How often operator new was called by any thread since the process began. Programs that link allocation_count.cpp count; it
/// replaces the operator of the whole program.
int64_t num_allocations();
/// What is allocated at the moment.
int64_t num_live_bytes();
/// The most that was allocated at any moment since the last call, or since the process began.
int64_t take_most_live_bytes();

enum class Whose { kThisThreads, kAllThreads };

/// While it lives, operator new has no memory for more than `most_bytes` at once. One at a time.
class LittleMemory {
 public:
  explicit LittleMemory(int64_t most_bytes, Whose whose = Whose::kThisThreads);
  ~LittleMemory();
  LittleMemory(const LittleMemory&) = delete;
  LittleMemory& operator=(const LittleMemory&) = delete;
};

}  // namespace ferry::test
