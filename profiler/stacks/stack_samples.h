#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/zones.h"

// Where a rank's threads were when another period of their CPU time had passed: stacks of functions, by name. A capture keeps
// them as its section `stacks`.

namespace ferry {

/// A function, as symbols name it; what has none is called by its module and the address in it.
struct StackFrame {
  std::string function;  // "ferry::Engine::step(ferry::StepPlan const&)", "libc.so.6+0x12af0"
  std::string module;    // "ferry", "libc.so.6"

  friend bool operator==(const StackFrame&, const StackFrame&) = default;
};

/// A thread was in a stack when another period of its CPU time had passed.
struct StackSample {
  uint64_t ticks = 0;
  uint32_t stack = 0;  // of StackCapture::stacks
  int32_t tid = 0;
  Zone zone = Zone::kStep;  // the innermost span that the thread was in
  bool is_in_zone = false;  // false: it was in none
  uint16_t periods = 1;     // that it stands for: more where the kernel was late

  friend bool operator==(const StackSample&, const StackSample&) = default;
};

inline constexpr std::size_t kMaxStackSamples = std::size_t{1} << 18;
inline constexpr std::size_t kMaxStackFrames = std::size_t{1} << 16;  // functions
inline constexpr std::size_t kMaxStacks = std::size_t{1} << 16;       // different ones
inline constexpr std::size_t kMaxStackDepth = 128;
inline constexpr std::size_t kMaxFrameName = 1024;  // bytes; longer names are cut

struct StackCapture {
  int64_t period_ns = 0;                      // of a thread's CPU time between two samples; 0: none were taken
  std::string absent;                         // why there are none although they were asked for
  std::vector<StackFrame> frames;             // different ones
  std::vector<std::vector<uint32_t>> stacks;  // indices of frames, the innermost function first; different ones
  std::vector<StackSample> samples;           // of a thread by time
  uint64_t num_lost = 0;                      // samples for which there was no room

  friend bool operator==(const StackCapture&, const StackCapture&) = default;
};

/// As the bytes of a section; empty if there is nothing to keep.
std::vector<std::byte> encode_stacks(const StackCapture& stacks);
/// Reads them back. Throws Error{kInvalidArgument} that names `source`.
StackCapture decode_stacks(std::span<const std::byte> bytes, const std::string& source);

}  // namespace ferry
