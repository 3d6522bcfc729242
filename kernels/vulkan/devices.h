#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/op_limits.h"
#include "kernels/stream.h"
#include "runtime/base/thread_pool.h"
#include "runtime/base/types.h"

// The machine's Vulkan devices, for who lists them or computes on one: without Vulkan's own headers, and there as well in a
// build without Vulkan, which has no device.

namespace ferry::vulkan {

/// A device of this machine as the loader lists it.
struct DeviceInfo {
  std::string name;                    // as its driver says
  std::string driver;                  // name and version
  std::string kind;                    // "discrete GPU", "integrated GPU", "virtual GPU", "CPU" or "other"
  uint64_t memory_bytes = 0;           // of the largest heap that is local to the device
  std::vector<std::string> abilities;  // "bf16 matrices 16x16x16", "packed dot products", ...; empty if refused
  std::string refusal;                 // why it cannot be used, empty if it can
  // What an open device can do, but not as Ferry needs it, which does without: its matrices give rows other bits beside other
  // rows.
  std::vector<std::string> faults;
};

/// Every device, in the loader's order.
struct DeviceList {
  std::vector<DeviceInfo> devices;
  std::string lack;  // why none can be listed (no loader, no driver), empty otherwise
};

/// What there is now.
DeviceList list_devices();

/// A device that is open, and everything that computes on it.
class OpenDevice {
 public:
  virtual ~OpenDevice() = default;
  virtual const Backend& backend() const = 0;
  /// Of the device's work; the pool is for what the host does beside it. Both outlive the stream.
  virtual std::unique_ptr<Stream> make_stream(ThreadPool& pool) = 0;
  /// Runs `work`, which hands ops to a stream of this device, for what they are computed with alone: that is made ready on the
  /// stream's pool, so that nobody waits for it later. Nothing is computed, and the host sees nothing new in its memory.
  virtual void rehearse(Stream& stream, const std::function<void()>& work) = 0;
  /// What ops of such limits need of its memory besides what they are given, and making a stream of this device have it: so no
  /// op asks for more later.
  virtual int64_t scratch_bytes(const OpLimits& limits) const = 0;
  virtual void reserve_scratch(Stream& stream, const OpLimits& limits) = 0;
  virtual const DeviceInfo& info() const = 0;
  /// Of its memory, now: what may still be allocated.
  virtual uint64_t free_bytes() const = 0;
  /// Grows while it works, and while somebody waits for it within the minute that each submission has. Any thread; does not
  /// wait.
  virtual uint64_t progress() noexcept = 0;
  /// Bytes per second of reading `num_bytes` of its memory (a GiB at most, and an eighth of what is free) again and again: no
  /// step that reads as many is faster. Takes about a tenth of a second. Not while it works on anything else.
  virtual double read_bytes_per_s(std::size_t num_bytes) = 0;
  /// Operations per second, a multiply-add being two, of multiplying factors of f32, bf16 or kI8 (codes) in registers: no
  /// product is faster. Takes a few tenths of a second. Likewise.
  virtual double flops_per_s(DType factors) = 0;
  /// What multiplies them: "bf16 matrices 16x16x16", "packed dot products", ...
  virtual std::string multiply_unit(DType factors) const = 0;
};

/// Opens device `index` of list_devices() to compute in `dtype`. Throws Error{kInvalidArgument} that lists what there is for an
/// index that there is not, Error{kFailedPrecondition} with the refusal, or Error{kUnavailable}; each begins with
/// "--device vulkan:N: ". Its info says what of it turned out not to be fit for use. What its driver makes of shaders is kept
/// in `cache_folder` for the next run; empty: it is not.
std::unique_ptr<OpenDevice> open_device(int index, DType dtype, const std::filesystem::path& cache_folder = {});

}  // namespace ferry::vulkan
