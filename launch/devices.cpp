#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/op_table.h"
#include "kernels/vulkan/devices.h"
#include "launch/commands.h"
#include "launch/processor_name.h"
#include "runtime/base/error.h"
#include "runtime/compute_device.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;

ordered_json cpu_json() {
  std::vector<std::string> kernels;
  for (const OpTable* table : available_op_tables()) kernels.emplace_back(table->name);
  std::vector<std::string> matmuls = cpu_matmul_names();
  for (const char* name : {"onednn", "ref"}) matmuls.emplace_back(name);
  return {{"device", "cpu"},    {"name", processor_name()},
          {"kind", "CPU"},      {"memory_bytes", static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)},
          {"kernels", kernels}, {"matmul", matmuls}};
}

ordered_json device_json(int index, const vulkan::DeviceInfo& device) {
  return {{"device", device_name(index)},
          {"name", device.name},
          {"kind", device.kind},
          {"driver", device.driver},
          {"memory_bytes", device.memory_bytes},
          {"abilities", device.abilities},
          {"faults", device.faults},
          {"refusal", device.refusal.empty() ? ordered_json() : ordered_json(device.refusal)}};
}

/// What a device turns out to be once it is open; if it cannot be opened now, for want of memory say, what it was listed as.
vulkan::DeviceInfo looked_at(int index, const vulkan::DeviceInfo& listed, const std::filesystem::path& cache_folder) {
  if (!listed.refusal.empty()) return listed;
  try {
    return vulkan::open_device(index, DType::kBF16, cache_folder)->info();
  } catch (const Error&) {
    return listed;
  }
}

/// The CPU first; "lack" says why there is no other device, or is null.
ordered_json describe_devices(const std::filesystem::path& cache_folder) {
  const vulkan::DeviceList list = vulkan::list_devices();
  ordered_json devices = ordered_json::array({cpu_json()});
  for (std::size_t i = 0; i < list.devices.size(); ++i) {
    const int index = static_cast<int>(i);
    devices.push_back(device_json(index, looked_at(index, list.devices[i], cache_folder)));
  }
  return {{"devices", devices}, {"lack", list.lack.empty() ? ordered_json() : ordered_json(list.lack)}};
}

std::string joined(const ordered_json& words) {
  std::string all;
  for (const auto& word : words) all += (all.empty() ? "" : ", ") + word.get<std::string>();
  return all;
}

std::string abilities_of(const ordered_json& device) {
  if (device["device"] == "cpu") return "kernels " + joined(device["kernels"]) + "; matmul " + joined(device["matmul"]);
  if (!device["refusal"].is_null()) return "not usable: " + device["refusal"].get<std::string>();
  const std::string faults = joined(device["faults"]);
  return joined(device["abilities"]) + (faults.empty() ? "" : "; not used, since rows depend on each other there: " + faults);
}

using Row = std::array<std::string, 6>;

Row row_of(const ordered_json& device) {
  std::array<char, 32> memory{};
  std::snprintf(memory.data(), memory.size(), "%.1f GB", device["memory_bytes"].get<double>() * 1e-9);
  return {device["device"], device["name"], device["kind"], device.value("driver", ""), memory.data(), abilities_of(device)};
}

/// As wide as the text is to a reader, if each of its characters is one column: continuation bytes of UTF-8 are none.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

void print_devices(const ordered_json& described) {
  std::vector<Row> rows{{"device", "name", "kind", "driver", "memory", "abilities"}};
  for (const ordered_json& device : described["devices"]) rows.push_back(row_of(device));
  std::array<std::size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const bool is_last = c + 1 == row.size();
      line += one_line(row[c]) + (is_last ? "" : std::string(widths[c] - width_of(row[c]) + 2, ' '));
    }
    std::printf("%s\n", line.c_str());
  }
  if (!described["lack"].is_null()) std::printf("no Vulkan device: %s\n", described["lack"].get<std::string>().c_str());
}

}  // namespace

int run_devices(const DevicesOptions& options, const std::filesystem::path& cache_folder) {
  const ordered_json described = describe_devices(cache_folder);
  if (options.json) {
    std::printf("%s\n", described.dump(-1, ' ', false, ordered_json::error_handler_t::replace).c_str());
  } else {
    print_devices(described);
  }
  return 0;
}

}  // namespace ferry
