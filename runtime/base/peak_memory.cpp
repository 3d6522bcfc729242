#include "runtime/base/peak_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "runtime/base/file_descriptor.h"

namespace ferry {
namespace {

std::atomic<int64_t> peak_before{0};  // bytes, of before the last measurement
std::atomic<bool> is_measuring{false};

/// The kernel's, since the process began or the peak was started anew.
int64_t kernels_peak() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace

int64_t peak_resident_bytes() { return is_measuring ? peak_before.load() : std::max(peak_before.load(), kernels_peak()); }

MeasurementMemory::MeasurementMemory() {
  peak_before = peak_resident_bytes();
  is_measuring = true;
}

MeasurementMemory::~MeasurementMemory() {
  constexpr char kPeakIsNow = '5';
  const FileDescriptor file(open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC));
  [[maybe_unused]] const ssize_t written = write(file.get(), &kPeakIsNow, 1);
  is_measuring = false;
}

}  // namespace ferry
