#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/base/file_descriptor.h"
#include "runtime/checkpoint/safetensors.h"

namespace ferry::test {

/// Turns one bit of an open file over. Those who have mapped the file see it.
inline void flip_bit(const FileDescriptor& file, int64_t offset, int bit) {
  char byte = 0;
  ASSERT_EQ(::pread(file.get(), &byte, 1, offset), 1);
  byte = static_cast<char>(byte ^ (1 << bit));
  ASSERT_EQ(::pwrite(file.get(), &byte, 1, offset), 1);
}
inline void flip_bit(const std::filesystem::path& path, int64_t offset, int bit = 0) {
  flip_bit(FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC)), offset, bit);
}

/// Returns where byte `at` of a tensor is in its safetensors file. `at` counts from the tensor's end if it is negative.
inline int64_t tensor_offset(const std::filesystem::path& path, const std::string& tensor, int64_t at) {
  const SafetensorsFile file(path);
  int64_t data_bytes = 0;
  for (const TensorInfo& info : file.tensors()) data_bytes += info.bytes;
  const auto first = std::ranges::min_element(file.tensors(), {}, &TensorInfo::data);
  const TensorInfo& info = *file.find(tensor);
  return file.size() - data_bytes + (info.data - first->data) + (at < 0 ? info.bytes + at : at);
}

}  // namespace ferry::test
