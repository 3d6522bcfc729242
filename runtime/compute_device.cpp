#include "runtime/compute_device.h"

#include <algorithm>
#include <vector>

#include "runtime/base/available_memory.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

bool is_gpu(const vulkan::DeviceInfo& device) {
  return device.kind == "discrete GPU" || device.kind == "integrated GPU" || device.kind == "virtual GPU";
}

/// Numbers of the devices that can be used.
template <class Predicate>
std::vector<int> usable(const vulkan::DeviceList& list, Predicate&& is_wanted) {
  std::vector<int> found;
  for (int i = 0; i < static_cast<int>(list.devices.size()); ++i) {
    const vulkan::DeviceInfo& device = list.devices[static_cast<std::size_t>(i)];
    if (device.refusal.empty() && is_wanted(device)) found.push_back(i);
  }
  return found;
}

/// Why no device is a GPU that can be used, of each.
std::string complaints(const vulkan::DeviceList& list) {
  if (list.devices.empty()) return list.lack.empty() ? "there is no Vulkan device" : list.lack;
  std::string all;
  for (std::size_t i = 0; i < list.devices.size(); ++i) {
    const vulkan::DeviceInfo& device = list.devices[i];
    const std::string why = device.refusal.empty() ? "is no GPU" : "cannot be used: " + device.refusal;
    all += (all.empty() ? "" : "; ") + device_name(static_cast<int>(i)) + " (" + device.name + ") " + why;
  }
  return all;
}

}  // namespace

std::string device_name(int index) { return "vulkan:" + std::to_string(index); }

DeviceSelection select_device(const DeviceChoice& choice, const vulkan::DeviceList& list, int local_rank) {
  using Kind = DeviceChoice::Kind;
  if (choice.kind == Kind::kCpu) return {};
  if (choice.index) return {.index = choice.index, .why_cpu = ""};
  const std::vector<int> gpus = usable(list, is_gpu);
  if (choice.kind == Kind::kAuto) {
    if (gpus.empty()) return {.index = std::nullopt, .why_cpu = complaints(list)};
    return {.index = gpus.front(), .why_cpu = ""};
  }
  const std::vector<int> dealt = gpus.empty() ? usable(list, [](const auto&) { return true; }) : gpus;
  if (dealt.empty()) throw Error(ErrorCode::kFailedPrecondition, complaints(list));
  return {.index = dealt[static_cast<std::size_t>(local_rank) % dealt.size()], .why_cpu = ""};
}

std::string ComputeDevice::describe() const { return device_name(index) + " (" + open->info().name + ")"; }

std::string ComputeDevice::warning() const {
  std::string all;
  for (const std::string& fault : open->info().faults) all += (all.empty() ? "" : " and ") + fault;
  if (all.empty()) return "";
  return "--device " + describe() + ": computing without its " + all + ": a row's result depends on the rows beside it there";
}

void ComputeDevice::require_memory(int64_t bytes, const std::string& what) const {
  constexpr int64_t kReserve = int64_t{256} << 20;  // for what is allocated without asking, by drivers and others
  const auto known = static_cast<int64_t>(open->free_bytes());
  const int64_t there = known - std::min(kReserve, known / 8);
  if (bytes <= there) return;
  throw Error(ErrorCode::kResourceExhausted, "--device " + describe() + ": " + what + " needs " + size_text(bytes) +
                                                 " of its memory; available: " + size_text(there));
}

namespace {

/// Complaints begin with the option, as those of open_device() do.
DeviceSelection select_listed(const DeviceChoice& choice, int local_rank) {
  try {
    return select_device(choice, vulkan::list_devices(), local_rank);
  } catch (const Error& error) {
    throw Error(error.code(), "--device " + device_choice_name(choice) + ": " + error.what());
  }
}

}  // namespace

std::optional<ComputeDevice> open_compute_device(const DeviceChoice& choice, int local_rank, DType dtype,
                                                 const std::filesystem::path& cache_folder, std::string& why_cpu) {
  if (choice.kind == DeviceChoice::Kind::kCpu) return std::nullopt;
  const DeviceSelection selected = select_listed(choice, local_rank);
  why_cpu = selected.why_cpu;
  if (!selected.index) return std::nullopt;
  try {
    return ComputeDevice{*selected.index, vulkan::open_device(*selected.index, dtype, cache_folder)};
  } catch (const Error& error) {
    if (choice.kind != DeviceChoice::Kind::kAuto) throw;
    why_cpu = error.what();
    return std::nullopt;
  }
}

}  // namespace ferry
