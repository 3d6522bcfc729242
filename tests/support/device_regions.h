#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "kernels/stream.h"

namespace ferry::test {

/// Memory of the host that a device is to work on: taken there and back whole, with what lies between rows, so that arguments
/// that share memory still do.
class DeviceRegions {
 public:
  /// Names bytes of the host. Before take().
  void add(const std::byte* first, std::size_t size);
  void take(Stream& stream);
  /// Where `host` lies on the device; null for what was not added: null, and arrays without elements.
  std::byte* on_device(const std::byte* host) const;
  /// Brings all of them back, and waits for that.
  void bring_back(Stream& stream);

 private:
  struct Region {
    std::size_t size = 0;
    Storage storage;
    std::size_t offset = 0;  // of its first byte, so that it is as well aligned as on the host
  };
  std::map<std::byte*, Region> regions_;  // by where they begin on the host; apart
};

}  // namespace ferry::test
