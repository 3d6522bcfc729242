#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

// How sections of a capture's file (profiler/capture_sections.h) write and read plain values: as they lie in memory.

namespace ferry {

template <class Value>
void append_raw(std::vector<std::byte>& bytes, const Value& value) {
  const auto* data = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), data, data + sizeof value);
}

/// From the front of `rest`, which has at least as many bytes: the caller has looked.
template <class Value>
Value take_raw(std::span<const std::byte>& rest) {
  Value value;
  std::memcpy(&value, rest.data(), sizeof value);
  rest = rest.subspan(sizeof value);
  return value;
}

}  // namespace ferry
