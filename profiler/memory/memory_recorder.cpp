#include "profiler/memory/memory_recorder.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/memory_use.h"

namespace ferry {
namespace {

/// Bytes of a line "RssAnon:\t    112 kB"; kNotKnown if there is no such line.
int64_t find_bytes(std::string_view status, std::string_view name) {
  const std::size_t at = status.find(name);
  if (at == std::string_view::npos) return kNotKnown;
  std::string_view rest = status.substr(at + name.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  int64_t kilobytes = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), kilobytes);
  constexpr int64_t kMost = int64_t{1} << 40;
  return error == std::errc() && kilobytes >= 0 && kilobytes < kMost ? kilobytes * 1024 : kNotKnown;
}

/// What the C library has of the system for small things and large ones.
struct HeapBytes {
  int64_t small = 0, large = 0;
};
HeapBytes find_heap_bytes() {
#if defined(__GLIBC__)
  const struct mallinfo2 heap = mallinfo2();
  return {static_cast<int64_t>(heap.arena), static_cast<int64_t>(heap.hblkhd)};
#else
  return {};
#endif
}

/// Nothing is known of devices where none was ever asked for memory.
void hold_on_devices(MemorySample& sample, const std::array<UsedMemory, kNumMemoryUses>& uses) {
  const auto of = [&](MemoryUse use) { return uses[static_cast<std::size_t>(use)].device; };
  int64_t all = 0;
  for (const UsedMemory& use : uses) all += use.device;
  if (all <= 0) return;
  sample[MemoryKind::kDeviceWeights] = of(MemoryUse::kWeights);
  sample[MemoryKind::kDeviceKvCache] = of(MemoryUse::kKvCache);
  sample[MemoryKind::kDeviceRecurrentState] = of(MemoryUse::kRecurrentState);
  sample[MemoryKind::kDeviceSnapshots] = of(MemoryUse::kSnapshots);
  sample[MemoryKind::kDeviceBuffers] =
      all - of(MemoryUse::kWeights) - of(MemoryUse::kKvCache) - of(MemoryUse::kRecurrentState) - of(MemoryUse::kSnapshots);
}

/// Kinds that the process holds, by what the program and the C library say.
void hold(MemorySample& sample, const TraceMemory& trace) {
  const std::array<UsedMemory, kNumMemoryUses> uses = measure_memory_uses();
  const auto of = [&](MemoryUse use) { return uses[static_cast<std::size_t>(use)]; };
  int64_t small = 0;
  const auto set = [&](MemoryKind kind, MemoryUse use) {
    sample[kind] = of(use).resident + of(use).small;
    small += of(use).small;
  };
  set(MemoryKind::kWeights, MemoryUse::kWeights);
  set(MemoryKind::kKvCache, MemoryUse::kKvCache);
  set(MemoryKind::kRecurrentState, MemoryUse::kRecurrentState);
  set(MemoryKind::kSnapshots, MemoryUse::kSnapshots);
  set(MemoryKind::kSwapSpace, MemoryUse::kSwapSpace);
  set(MemoryKind::kBuffers, MemoryUse::kBuffers);
  set(MemoryKind::kExchange, MemoryUse::kExchange);
  const auto reserved = [&](MemoryUse use) { return of(use).reserved + of(use).small; };
  sample[MemoryKind::kReservedKvCache] = reserved(MemoryUse::kKvCache);
  sample[MemoryKind::kReservedRecurrentState] = reserved(MemoryUse::kRecurrentState);
  hold_on_devices(sample, uses);
  sample[MemoryKind::kTrace] = trace.resident_bytes;
  const HeapBytes heap = find_heap_bytes();
  const int64_t large = std::max<int64_t>(heap.large - trace.mapped_bytes, 0);
  sample[MemoryKind::kHeap] = std::max<int64_t>(heap.small + large - small, 0);
}

/// The C library does not say how much of what it has was ever touched: it is not more than others leave of the process's own
/// pages.
void limit_heap(MemorySample& sample) {
  if (sample[MemoryKind::kAnonymous] == kNotKnown) return;
  const int64_t others = sample.total(MemoryRole::kHeld) - sample[MemoryKind::kHeap];
  const int64_t left = std::max<int64_t>(sample[MemoryKind::kAnonymous] - others, 0);
  sample[MemoryKind::kHeap] = std::min(sample[MemoryKind::kHeap], left);
}

}  // namespace

int64_t MemorySample::total(MemoryRole role) const {
  int64_t sum = 0;
  for (std::size_t k = 0; k < kNumMemoryKinds; ++k) {
    if (kMemoryKinds[k].role == role && bytes[k] != kNotKnown) sum += bytes[k];
  }
  return sum;
}

MemorySample sample_memory(const MemoryAccount& account, const TraceMemory& trace, uint64_t now, const char* status) {
  MemorySample sample{.ticks = now};
  sample.bytes.fill(kNotKnown);
  hold(sample, trace);
  for (std::size_t k = 0; k < kNumMemoryKinds; ++k) {
    if (kMemoryKinds[k].role == MemoryRole::kUsed) sample.bytes[k] = account.bytes(static_cast<MemoryKind>(k));
  }
  std::array<char, 4096> text;
  const FileDescriptor file(open(status, O_RDONLY | O_CLOEXEC));
  const ssize_t size = file.get() < 0 ? -1 : read(file.get(), text.data(), text.size());
  const std::string_view said(text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  sample[MemoryKind::kAnonymous] = find_bytes(said, "RssAnon:");
  sample[MemoryKind::kFiles] = find_bytes(said, "RssFile:");
  sample[MemoryKind::kShared] = find_bytes(said, "RssShmem:");
  limit_heap(sample);
  return sample;
}

void MemoryRecorder::begin(std::size_t max_samples) {
  capture_ = {};
  capture_.samples.reserve(std::clamp(max_samples, std::size_t{1}, kMaxMemorySamples));
  due_ = SteadyClock::now();
}

void MemoryRecorder::sample(const MemoryAccount& account, const TraceMemory& trace, uint64_t now) {
  const SteadyClock::time_point begin = SteadyClock::now();
  if (capture_.samples.size() < capture_.samples.capacity()) {
    capture_.samples.push_back(sample_memory(account, trace, now));
  } else {
    ++capture_.num_lost;
  }
  due_ = begin + std::max<SteadyClock::duration>(kPeriod, kShare * (SteadyClock::now() - begin));
}

MemoryCapture MemoryRecorder::end() { return std::exchange(capture_, {}); }

}  // namespace ferry
