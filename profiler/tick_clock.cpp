#include "profiler/tick_clock.h"

#include <cmath>
#include <fstream>
#include <string>

namespace ferry {
namespace {

/// Bit 8 of edx: the counter's rate does not follow the core's, and it does not stop.
bool tsc_is_invariant() {
#if defined(__x86_64__)
  unsigned eax = 0x80000007, ebx = 0, ecx = 0, edx = 0;
  asm volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  return (edx & (1U << 8)) != 0;
#else
  return false;
#endif
}

/// The kernel measures clocks against each other and leaves the counter when cores disagree.
bool kernel_trusts_tsc() {
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  file >> name;
  return name == "tsc";
}

int64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

namespace detail {
const bool ticks_are_tsc = kernel_trusts_tsc() && tsc_is_invariant();
}

TickCalibration::TickCalibration() : first_(take_pair()) {}

/// Of several readings of the system's clock between two of the counter, the one with the narrowest bracket.
TickCalibration::Pair TickCalibration::take_pair() {
  constexpr int kTries = 32;
  Pair best{};
  uint64_t narrowest = ~uint64_t{0};
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = now_ticks();
    const int64_t ns = monotonic_ns();
    const uint64_t bracket = now_ticks() - before;
    if (bracket < narrowest) {
      narrowest = bracket;
      best = {before + bracket / 2, ns};
    }
  }
  return best;
}

TickLine TickCalibration::line() const {
  if (!ticks_are_tsc()) return {.base_ticks = first_.ticks, .base_ns = static_cast<int64_t>(first_.ticks), .ns_per_tick = 1};
  constexpr int64_t kShortest = 10'000'000;  // ns between the pairs
  Pair second = take_pair();
  while (second.ns - first_.ns < kShortest) second = take_pair();
  const double ns_per_tick = static_cast<double>(second.ns - first_.ns) / static_cast<double>(second.ticks - first_.ticks);
  return {.base_ticks = second.ticks, .base_ns = second.ns, .ns_per_tick = ns_per_tick};
}

uint64_t to_ticks(const TickLine& line, std::chrono::steady_clock::time_point time) {
  const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  return line.base_ticks + static_cast<uint64_t>(std::llround(static_cast<double>(ns - line.base_ns) / line.ns_per_tick));
}

}  // namespace ferry
