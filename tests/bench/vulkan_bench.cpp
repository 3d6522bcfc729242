#include "tests/bench/vulkan_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <span>
#include <string_view>
#include <vector>

namespace ferry::bench {
namespace {

using vulkan::PhysicalDevice;

constexpr double kSecondsOfARun = 0.05;

VulkanOptions parse(const VulkanProgram& program, std::span<char*> arguments) {
  VulkanOptions options;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (argument == "--plain" && program.has_plain) {
      options.is_plain = true;
    } else if (argument == "--quick") {
      options.is_quick = true;
    } else if (argument == "--device" && has_value) {
      options.device = std::stoi(arguments[++i]);
    } else if (argument == "--only" && has_value) {
      options.only = arguments[++i];
    } else {
      throw_invalid("usage: " + std::string(program.name) + " [--device I]" + (program.has_plain ? " [--plain]" : "") +
                    " [--quick] [--only TEXT]");
    }
  }
  return options;
}

int run(const VulkanProgram& program, const VulkanOptions& options) {
  const std::vector<PhysicalDevice> devices = vulkan::find_physical_devices();
  if (options.device < 0 || options.device >= static_cast<int>(devices.size())) {
    std::printf("no Vulkan device %d\n", options.device);
    return options.is_quick ? 0 : 1;  // a machine without one passes the test
  }
  const PhysicalDevice& device = devices[static_cast<std::size_t>(options.device)];
  if (!device.info.refusal.empty()) throw_invalid(device.info.name + ": " + device.info.refusal);
  std::printf("%s, %s:", device.info.name.c_str(), device.info.driver.c_str());
  for (const std::string& ability : device.info.abilities) std::printf(" %s;", ability.c_str());
  std::printf("\n");
  return program.run(device, options);
}

}  // namespace

int run_program(int argc, char** argv, const VulkanProgram& program) {
  try {
    return run(program, parse(program, std::span(argv, static_cast<std::size_t>(argc))));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

PhysicalDevice without_matrices(const PhysicalDevice& device) {
  PhysicalDevice plain = device;
  plain.traits.bf16 = plain.traits.f16 = plain.traits.int8 = {};
  return plain;
}

double time_calls(Stream& stream, const std::function<void(int64_t)>& call) {
  const auto run = [&](int64_t first, int64_t count) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = first; i < first + count; ++i) call(i);
    stream.wait(stream.submit());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  run(0, 1);
  const double guess = run(1, 4) / 4;
  const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(kSecondsOfARun / guess), 4, 2000);
  double best = run(0, count);
  for (int i = 0; i < 2; ++i) best = std::min(best, run(0, count));
  return best / static_cast<double>(count);
}

}  // namespace ferry::bench
