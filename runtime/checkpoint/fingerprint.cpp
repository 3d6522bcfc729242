#include "runtime/checkpoint/fingerprint.h"

#include <algorithm>
#include <cstdio>

#include "runtime/base/content_hash.h"

namespace ferry {
namespace {

constexpr int64_t kAllBytes = int64_t{256} << 20;  // that are read whole
constexpr int64_t kNumPieces = 4096;               // of more
constexpr int64_t kPieceBytes = 4096;

}  // namespace

std::string checkpoint_fingerprint(const Checkpoint& checkpoint) {
  ContentHash hash;
  int64_t total = 0;
  for (const std::string_view name : checkpoint.names()) {
    const TensorInfo& tensor = *checkpoint.find(name);
    const auto type = static_cast<uint32_t>(tensor.dtype);
    hash.add(std::as_bytes(std::span(name)));
    hash.add(std::as_bytes(std::span(&type, 1)));
    hash.add(std::as_bytes(std::span(tensor.shape)));
    total += tensor.bytes;
  }
  const int64_t stride = total <= kAllBytes ? kPieceBytes : std::max(total / kNumPieces, kPieceBytes);
  for (const std::string_view name : checkpoint.names()) {
    const TensorInfo& tensor = *checkpoint.find(name);
    for (int64_t offset = 0; offset < tensor.bytes; offset += stride)
      hash.add({tensor.data + offset, static_cast<std::size_t>(std::min(kPieceBytes, tensor.bytes - offset))});
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash.value()));
  return text;
}

}  // namespace ferry
