#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/backend.h"

// A device that computes with the CPU's kernels, but is as far from the host as a GPU is: its memory cannot be touched, and
// nothing runs before the host waits for it. Code that works with it looks where it may, and says when.

namespace ferry::test {

/// Pages without access but while they are open. The process dies where it touches them.
class ApartMemory final : public Memory {
 public:
  Space space() const override { return Space::kDevice; }
  Storage allocate(std::size_t size) override;
  void fill(Address<std::byte> to, std::span<const std::byte> from) override;

  /// Runs `work` with the pages open.
  void with_access(const std::function<void()>& work);

 private:
  struct Region;
  void let(bool is_open);

  std::mutex mutex_;
  std::vector<std::weak_ptr<Region>> regions_;
};

/// The memory, and a backend of the best kernels that work in it.
class ApartDevice {
 public:
  explicit ApartDevice(DType dtype);

  const Backend& backend() const { return backend_; }
  /// The kernels themselves, for what was recorded.
  const Backend& kernels() const { return kernels_; }
  ApartMemory& memory() { return memory_; }

 private:
  ApartMemory memory_;
  Backend kernels_, backend_;
};

/// Records what is handed in, and runs it when the host waits.
class ApartStream final : public Stream {
 public:
  ApartStream(ApartDevice& device, ThreadPool& pool)
      : Stream(device.backend(), pool), device_(device), kernels_(device.kernels(), pool) {}

  void copy(Address<const std::byte> from, Address<std::byte> to, std::size_t size) override;
  void clear(Address<std::byte> to, std::size_t size) override;
  Event submit() override;
  void wait(Event event) override;

  /// Takes down an op: `work` gets the stream on which the kernels run.
  void record(std::function<void(Stream&)> work) { recorded_.push_back(std::move(work)); }
  int64_t num_recorded() const { return num_recorded_; }

 private:
  ApartDevice& device_;
  Stream kernels_;
  std::vector<std::function<void(Stream&)>> recorded_, submitted_;
  uint64_t num_submits_ = 0;
  int64_t num_recorded_ = 0;  // over all
};

}  // namespace ferry::test
