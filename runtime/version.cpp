#include "runtime/version.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "comm/gloo/gloo_group.h"
#include "comm/mpi/mpi_group.h"
#include "kernels/matmul.h"
#include "kernels/op_table.h"
#include "kernels/vulkan/devices.h"
#include "runtime/base/error.h"
#include "runtime/build_info.h"

namespace ferry {

const char* version_number() { return build_info::kVersion; }

std::string program_identity() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::vector<char> block(std::size_t{1} << 20);
  uint64_t hash = 0xcbf29ce484222325;
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0) {
    const auto size = static_cast<std::size_t>(file.gcount());
    for (std::size_t i = 0; i + sizeof(uint64_t) <= size; i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, &block[i], sizeof word);
      hash = (hash ^ word) * 0x100000001b3;
    }
  }
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
  return std::string("ferry ") + build_info::kVersion + " (build " + digits.data() + ")";
}

namespace {

/// The devices that can be used, or why there is none.
std::string vulkan_text() {
  try {
    const vulkan::DeviceList list = vulkan::list_devices();
    std::string names, refused;
    for (const vulkan::DeviceInfo& device : list.devices) {
      if (device.refusal.empty()) names += (names.empty() ? "" : ", ") + device.name;
      if (!device.refusal.empty()) refused += (refused.empty() ? "" : ", ") + device.name + ": " + device.refusal;
    }
    if (!names.empty()) return one_line(names);
    return one_line("none (" + (list.lack.empty() ? refused : list.lack) + ")");
  } catch (const Error& error) {
    return std::string("none (") + error.what() + ")";
  }
}

}  // namespace

std::string version_text() {
  std::string kernels;
  for (const OpTable* table : available_op_tables()) kernels += (kernels.empty() ? "" : ", ") + std::string(table->name);
  std::string matmuls;
  for (const std::string& name : cpu_matmul_names()) matmuls += name + ", ";
  return std::string("ferry ") + build_info::kVersion + "\nkernels: " + kernels + "\nmatmul: " + matmuls + onednn_version() +
         ", ref\nvulkan: " + vulkan_text() + "\ntransports: " + mpi_version() + ", " + gloo_version() + "\n";
}

}  // namespace ferry
