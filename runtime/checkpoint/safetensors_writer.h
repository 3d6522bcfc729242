#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/checksums.h"
#include "runtime/checkpoint/safetensors.h"

namespace ferry {

class PendingFile;

/// A tensor to be written.
struct TensorToWrite {
  std::string name;
  StoredType dtype = StoredType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // product of shape * element size bytes
};

/// A safetensors file whose data arrive piece by piece: nothing of them is kept. The file appears under its path only when it
/// is committed; until then it is a temporary neighbour, which goes with the writer.
///
/// Data begin at a multiple of kDataAlignment bytes. One thread at a time. All throw Error{kResourceExhausted} on a full disk
/// and Error{kFailedPrecondition} if the path cannot be written.
class SafetensorsWriter {
 public:
  static constexpr int64_t kDataAlignment = 64;  // bytes, of the first tensor's data in the file

  /// Names must be distinct UTF-8; `data` of the tensors is not looked at.
  SafetensorsWriter(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// The next bytes of the tensors' data, which lie back to back in the given order.
  void write(std::span<const std::byte> data);
  /// All data must have been written. Returns the file's checksums.
  FileChecksums commit();

 private:
  std::unique_ptr<PendingFile> file_;
  ChecksumMaker checksums_;
  int64_t bytes_left_ = 0;
};

/// Writes a safetensors file: tensors in the given order, the same bytes for the same input. Throws as SafetensorsWriter does.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace ferry
