#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace ferry::vulkan {

/// For whom a driver's compiled pipelines are: data of a pipeline cache says the same in its header, and serves nobody else.
struct PipelineOwner {
  uint32_t vendor_id = 0, device_id = 0;
  std::array<uint8_t, 16> driver_uuid{};  // pipelineCacheUUID
};

/// What a driver made of Ferry's shaders, in a file, so that the next run need not wait for it. The file's name has the owner
/// and a hash of the shaders; in it are a magic number, the length and a checksum, then the driver's data. Who cannot read or
/// write it goes without: no Error is thrown.
class PipelineFile {
 public:
  static constexpr int64_t kMaxBytes = int64_t{64} << 20;  // of the data

  /// In `folder`, which is made when there is something to keep. Without a folder nothing is kept.
  PipelineFile(const std::filesystem::path& folder, const PipelineOwner& owner);

  /// What the driver can be given; empty if there is none, or if it is too large, broken or of another owner.
  std::vector<std::byte> read() const;
  /// In place of what is there, at once; what killed runs left unfinished is removed. Nothing is written if the folder does not
  /// allow it, or the data are too large or not the owner's.
  void write(std::span<const std::byte> data) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;  // empty: none
  PipelineOwner owner_;
};

}  // namespace ferry::vulkan
