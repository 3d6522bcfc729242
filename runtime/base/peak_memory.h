#pragma once

#include <cstdint>

namespace ferry {

/// The most bytes that the process has had resident so far, but for what lived and went within a MeasurementMemory.
int64_t peak_resident_bytes();

/// While it lives, a measurement takes memory that the process itself has no need of, and gives it back before this ends. One
/// at a time. Where the kernel cannot start the peak anew (/proc/PID/clear_refs, proc(5)), the measurement counts after all.
class MeasurementMemory {
 public:
  MeasurementMemory();
  ~MeasurementMemory();
  MeasurementMemory(const MeasurementMemory&) = delete;
  MeasurementMemory& operator=(const MeasurementMemory&) = delete;
};

}  // namespace ferry
