#include "tests/support/device_regions.h"

#include <algorithm>
#include <iterator>

namespace ferry::test {
namespace {

constexpr std::size_t kAlignment = 64;  // that is kept, bytes

}  // namespace

void DeviceRegions::add(const std::byte* first, std::size_t size) {
  if (first == nullptr || size == 0) return;
  // Only what was named writable is written back to, through the pointers that the test owns.
  auto* begin = const_cast<std::byte*>(first);  // NOLINT
  std::byte* end = begin + size;
  for (auto it = regions_.begin(); it != regions_.end();) {
    std::byte* other_end = it->first + it->second.size;
    if (it->first < end && begin < other_end) {
      begin = std::min(begin, it->first);
      end = std::max(end, other_end);
      it = regions_.erase(it);
    } else {
      ++it;
    }
  }
  regions_[begin].size = static_cast<std::size_t>(end - begin);
}

void DeviceRegions::take(Stream& stream) {
  for (auto& [host, region] : regions_) {
    region.offset = reinterpret_cast<uintptr_t>(host) % kAlignment;
    region.storage = stream.memory().allocate(region.size + region.offset);
    stream.copy(Address<const std::byte>(host), region.storage.address() + static_cast<int64_t>(region.offset), region.size);
  }
}

std::byte* DeviceRegions::on_device(const std::byte* host) const {
  if (host == nullptr) return nullptr;
  auto behind = std::upper_bound(regions_.begin(), regions_.end(), host,
                                 [](const std::byte* wanted, const auto& entry) { return wanted < entry.first; });
  if (behind == regions_.begin()) return nullptr;
  const auto& [begin, region] = *std::prev(behind);
  const auto distance = static_cast<std::size_t>(host - begin);
  if (distance >= region.size) return nullptr;
  return const_cast<Storage&>(region.storage).address().raw() + region.offset + distance;  // NOLINT
}

void DeviceRegions::bring_back(Stream& stream) {
  for (auto& [host, region] : regions_) {
    const Address<const std::byte> from = region.storage.address() + static_cast<int64_t>(region.offset);
    stream.copy(from, Address<std::byte>(host), region.size);
  }
  stream.wait(stream.submit());
}

}  // namespace ferry::test
