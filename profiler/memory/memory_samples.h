#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// What a rank's memory was used for while a capture ran. A capture keeps it as its section `memory`.

namespace ferry {

/// What memory is used for. Names and order are the file's: what is added goes to the end. What is held lies in memory, and is
/// part of what the system counts of the process.
#define FERRY_MEMORY_KINDS(X)                                       \
  X(kWeights, "weights", kHeld)                                     \
  X(kKvCache, "kv_cache", kHeld)                                    \
  X(kRecurrentState, "recurrent_state", kHeld)                      \
  X(kSnapshots, "snapshots", kHeld)                                 \
  X(kSwapSpace, "swap_space", kHeld)                                \
  X(kBuffers, "buffers", kHeld)                                     \
  X(kExchange, "exchange", kHeld)                                   \
  X(kTrace, "trace", kHeld)                                         \
  X(kHeap, "heap", kHeld)                                           \
  X(kReservedKvCache, "kv_cache_reserved", kReserved)               \
  X(kReservedRecurrentState, "recurrent_state_reserved", kReserved) \
  X(kUsedKvCache, "kv_cache_used", kUsed)                           \
  X(kAnonymous, "rss_anonymous", kResident)                         \
  X(kFiles, "rss_files", kResident)                                 \
  X(kShared, "rss_shared", kResident)                               \
  X(kDeviceWeights, "device_weights", kDevice)                      \
  X(kDeviceKvCache, "device_kv_cache", kDevice)                     \
  X(kDeviceRecurrentState, "device_recurrent_state", kDevice)       \
  X(kDeviceSnapshots, "device_snapshots", kDevice)                  \
  X(kDeviceBuffers, "device_buffers", kDevice)

enum class MemoryKind : uint8_t {
#define FERRY_MEMORY_ENUMERATOR(id, name, role) id,
  FERRY_MEMORY_KINDS(FERRY_MEMORY_ENUMERATOR)
#undef FERRY_MEMORY_ENUMERATOR
};

enum class MemoryRole : uint8_t {
  kHeld,      // in memory, of the process's own; `heap` is what is none of the others
  kReserved,  // what is held, and may be held later without anybody asking: pages that were not touched yet
  kUsed,      // the part of what is reserved that requests have at the moment
  kResident,  // what the system counts of the process: pages of its own, of files (weights that were packed before, the
              // program), shared with other processes; together its resident set
  kDevice,    // on a GPU, which is not the process's: `device_buffers` is what is none of the others, with the room in shared
              // blocks that nobody has yet
};

struct MemoryKindInfo {
  const char* name;
  MemoryRole role;
};

inline constexpr MemoryKindInfo kMemoryKinds[] = {
#define FERRY_MEMORY_INFO(id, name, role) {name, MemoryRole::role},
    FERRY_MEMORY_KINDS(FERRY_MEMORY_INFO)
#undef FERRY_MEMORY_INFO
};
inline constexpr std::size_t kNumMemoryKinds = sizeof kMemoryKinds / sizeof kMemoryKinds[0];
inline constexpr int64_t kNotKnown = -1;

/// Bytes by MemoryKind at a moment; kNotKnown where nobody says.
struct MemorySample {
  uint64_t ticks = 0;
  std::array<int64_t, kNumMemoryKinds> bytes{};

  int64_t operator[](MemoryKind kind) const { return bytes[static_cast<std::size_t>(kind)]; }
  int64_t& operator[](MemoryKind kind) { return bytes[static_cast<std::size_t>(kind)]; }
  /// Of all kinds of a role that are known.
  int64_t total(MemoryRole role) const;
  friend bool operator==(const MemorySample&, const MemorySample&) = default;
};

inline constexpr std::size_t kMaxMemorySamples = std::size_t{1} << 20;

struct MemoryCapture {
  std::vector<MemorySample> samples;  // by time: five a second, fewer of very large processes
  uint64_t num_lost = 0;              // samples for which there was no room

  friend bool operator==(const MemoryCapture&, const MemoryCapture&) = default;
};

/// As the bytes of a section; empty if there are no samples.
std::vector<std::byte> encode_memory(const MemoryCapture& memory);
/// Reads them back; kinds of later versions are skipped. Throws Error{kInvalidArgument} that names `source`.
MemoryCapture decode_memory(std::span<const std::byte> bytes, const std::string& source);

}  // namespace ferry
