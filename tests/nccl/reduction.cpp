#include "tests/nccl/reduction.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"

namespace ferry::nccl {
namespace {

/// The i-th T of bytes that need not be aligned.
template <class T>
T element_at(std::span<const std::byte> bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void put_element(std::span<std::byte> bytes, std::size_t i, const T& value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

template <class T>
T combined(ncclRedOp_t op, T first, T second) {
  const auto a = static_cast<Wide<T>>(first);
  const auto b = static_cast<Wide<T>>(second);
  switch (op) {
    case ncclProd: return narrowed<T>(static_cast<Wide<T>>(a * b));
    case ncclMax: return narrowed<T>(std::max(a, b));
    case ncclMin: return narrowed<T>(std::min(a, b));
    default: return narrowed<T>(static_cast<Wide<T>>(a + b));
  }
}

}  // namespace

std::vector<std::byte> contribution(const Reduction& reduction, std::span<const std::byte> data) {
  std::vector<std::byte> given(data.begin(), data.end());
  if (reduction.op != ncclNumOps) return given;
  with_element_type(reduction.type, [&]<class T>(T) {
    const T scalar = element_at<T>(reduction.scalar, 0);
    for (std::size_t i = 0; i < given.size() / sizeof(T); ++i)
      put_element(given, i, combined(ncclProd, element_at<T>(given, i), scalar));
  });
  return given;
}

void reduce_in_rank_order(const Reduction& reduction, std::span<const std::byte> parts, int num_ranks,
                          std::span<std::byte> out) {
  FERRY_CHECK_EQ(out.size(), reduction.bytes());
  FERRY_CHECK_EQ(parts.size(), reduction.bytes() * static_cast<std::size_t>(num_ranks));
  with_element_type(reduction.type, [&]<class T>(T) {
    for (std::size_t i = 0; i < reduction.count; ++i) {
      T value = element_at<T>(parts, i);
      for (int rank = 1; rank < num_ranks; ++rank)
        value = combined(reduction.op, value, element_at<T>(parts, static_cast<std::size_t>(rank) * reduction.count + i));
      if (reduction.op == ncclAvg)
        value = narrowed<T>(static_cast<Wide<T>>(static_cast<Wide<T>>(value) / static_cast<Wide<T>>(num_ranks)));
      put_element(out, i, value);
    }
  });
}

}  // namespace ferry::nccl
