#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/stream.h"
#include "kernels/vulkan/physical_device.h"
#include "runtime/base/error.h"

// What the benchmarks of a Vulkan device share: options, the device, and timing.

namespace ferry::bench {

struct VulkanOptions {
  int device = 0;
  bool is_plain = false;  // without matrix units; where the program has that option
  bool is_quick = false;  // tiny sizes
  std::string only;       // what has the text in its line

  bool wants(const std::string& line) const { return line.find(only) != std::string::npos; }
};

/// A program of such options, and of --plain if it has that.
struct VulkanProgram {
  const char* name;
  bool has_plain = false;
  std::function<int(const vulkan::PhysicalDevice&, const VulkanOptions&)> run;  // gives the exit code
};

/// Reads the options and runs the program on the device, whose name and abilities are printed before. The exit code: 1 after an
/// Error, or without the device unless the run is quick.
int run_program(int argc, char** argv, const VulkanProgram& program);

/// The device without matrix units.
vulkan::PhysicalDevice without_matrices(const vulkan::PhysicalDevice& device);

/// Seconds of one of many calls, behind each other: call(0), call(1), ...
double time_calls(Stream& stream, const std::function<void(int64_t)>& call);

[[noreturn]] inline void fail(const std::string& what) { throw Error(ErrorCode::kInternal, what); }

}  // namespace ferry::bench
