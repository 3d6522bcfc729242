#include "runtime/checkpoint/fingerprint.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ferry {
namespace {

constexpr int64_t kNumPieces = 256;
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
  int64_t first = 0, next = 0;  // of all bytes of weights: this tensor's, and of the next piece
  const int64_t stride = std::max(total / kNumPieces, kPieceBytes);
  for (const std::string_view name : checkpoint.names()) {
    const TensorInfo& tensor = *checkpoint.find(name);
    for (; next < first + tensor.bytes; next += stride) {
      const int64_t offset = next - first;
      add(tensor.data + offset, static_cast<std::size_t>(std::min(kPieceBytes, tensor.bytes - offset)));
    }
    first += tensor.bytes;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(XXH3_64bits_digest(state.get())));
  return text;
}

}  // namespace ferry
