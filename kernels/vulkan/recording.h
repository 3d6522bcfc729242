#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/vulkan/commands.h"
#include "kernels/vulkan/op_marks.h"

namespace ferry::vulkan {

/// Room that grows while something is recorded, and is used again when that has run.
class Arena {
 public:
  Arena(Device& device, BufferUse use) : device_(device), use_(use) {}

  struct Piece {
    std::byte* host = nullptr;
    uint64_t address = 0;
    VkBuffer buffer = VK_NULL_HANDLE;
    uint64_t offset = 0;  // bytes into the buffer
  };
  /// 16-byte aligned.
  Piece take(std::size_t size);
  void reset();

 private:
  Device& device_;
  BufferUse use_;
  std::vector<Buffer> chunks_;
  std::size_t chunk_ = 0, used_ = 0;  // where the next piece is looked for
};

/// One submission: its commands, and the room for what goes to and fro with them.
struct Recording {
  struct Download {
    const std::byte* from;  // in downloads
    std::byte* to;
    std::size_t size;
  };

  explicit Recording(Device& device)
      : commands(device),
        tables(device, BufferUse::kTables),
        uploads(device, BufferUse::kUpload),
        downloads(device, BufferUse::kDownload) {}

  Commands commands;
  Arena tables, uploads, downloads;
  std::vector<Download> pending;    // what the host is to get when the submission has run
  OpMarks marks;                    // while operators are traced
  uint64_t number = 0;              // of the submission
  std::vector<Recording*> lenders;  // earlier ones whose tables it reads
  uint64_t last_reader = 0;         // the last submission that was recorded to read its tables; kNotYet: that is in progress

  static constexpr uint64_t kNotYet = UINT64_MAX;
};

}  // namespace ferry::vulkan
