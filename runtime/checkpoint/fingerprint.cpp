#include "runtime/checkpoint/fingerprint.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ferry {
namespace {

constexpr int64_t kAllBytes = int64_t{256} << 20;  // that are read whole
constexpr int64_t kNumPieces = 4096;               // of more
constexpr int64_t kPieceBytes = 4096;

}  // namespace

std::string checkpoint_fingerprint(const Checkpoint& checkpoint) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  const auto add = [&](const void* data, std::size_t size) { XXH3_64bits_update(state.get(), data, size); };
  int64_t total = 0;
  for (const std::string_view name : checkpoint.names()) {
    const TensorInfo& tensor = *checkpoint.find(name);
    const auto type = static_cast<uint32_t>(tensor.dtype);
    add(name.data(), name.size());
    add(&type, sizeof type);
    add(tensor.shape.data(), tensor.shape.size() * sizeof(int64_t));
    total += tensor.bytes;
  }
  const int64_t stride = total <= kAllBytes ? kPieceBytes : std::max(total / kNumPieces, kPieceBytes);
  for (const std::string_view name : checkpoint.names()) {
    const TensorInfo& tensor = *checkpoint.find(name);
    for (int64_t offset = 0; offset < tensor.bytes; offset += stride)
      add(tensor.data + offset, static_cast<std::size_t>(std::min(kPieceBytes, tensor.bytes - offset)));
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(XXH3_64bits_digest(state.get())));
  return text;
}

}  // namespace ferry
