// Functions of nccl-tests (verifiable/verifiable.h) that are CUDA kernels there: what each rank contributes, what has to come
// of it, and the count of elements that are something else.

#include <verifiable/verifiable.h>

#include <algorithm>
#include <cstring>

#include "tests/nccl/element_types.h"

namespace ferry::nccl {
namespace {

/// splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014), a step per argument.
uint64_t mixed(uint64_t seed, uint64_t rank, uint64_t index) {
  uint64_t state = 0;
  for (const uint64_t next : {seed, rank, index}) {
    state += next + 0x9e3779b97f4a7c15U;
    state = (state ^ (state >> 30U)) * 0xbf58476d1ce4e5b9U;
    state = (state ^ (state >> 27U)) * 0x94d049bb133111ebU;
    state ^= state >> 31U;
  }
  return state;
}

/// What a rank contributes: whole numbers, so small that four ranks' sums, products and averages are exact in every type.
double small_number(int op, int num_ranks, int rank, uint64_t seed, uint64_t index) {
  const uint64_t bits = mixed(seed, static_cast<uint64_t>(rank), index);
  if (op == ncclProd) return static_cast<double>(1 + bits % 2);
  if (op == ncclAvg) return static_cast<double>(num_ranks) * static_cast<double>(bits % 8);
  return static_cast<double>(bits % 16);
}

double expected_number(int op, int num_ranks, uint64_t seed, uint64_t index) {
  double result = small_number(op, num_ranks, 0, seed, index);
  for (int rank = 1; rank < num_ranks; ++rank) {
    const double number = small_number(op, num_ranks, rank, seed, index);
    switch (op) {
      case ncclProd: result *= number; break;
      case ncclMax: result = std::max(result, number); break;
      case ncclMin: result = std::min(result, number); break;
      case ncclNumOps: result += ncclVerifiablePremulScalar<double>(rank) * number; break;
      default: result += number; break;
    }
  }
  return op == ncclAvg ? result / num_ranks : result;
}

/// Elements [first, first + count) of data that is only moved: any bits.
void put_any_bits(std::byte* elements, intptr_t count, std::size_t bytes, uint64_t seed, intptr_t first) {
  for (intptr_t i = 0; i < count; ++i) {
    const uint64_t bits = mixed(seed, 0, static_cast<uint64_t>(first + i));
    std::memcpy(elements + static_cast<std::size_t>(i) * bytes, &bits, bytes);
  }
}

/// number_of(index) as elements of `type`.
template <class NumberOf>
void put_numbers(void* elements, intptr_t count, ncclDataType_t type, intptr_t first, const NumberOf& number_of) {
  with_element_type(type, [&]<class T>(T) {
    for (intptr_t i = 0; i < count; ++i) {
      const T value = narrowed<T>(static_cast<Wide<T>>(number_of(static_cast<uint64_t>(first + i))));
      std::memcpy(static_cast<std::byte*>(elements) + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
    }
  });
}

}  // namespace
}  // namespace ferry::nccl

namespace host = ferry::nccl;

cudaError_t ncclVerifiablePrepareInput(void* elts, intptr_t elt_n, int elt_ty, int red_op, int rank_n, int rank_me,
                                       uint64_t seed, intptr_t elt_ix0, cudaStream_t) {
  const auto type = static_cast<ncclDataType_t>(elt_ty);
  if (rank_n == 1) {
    host::put_any_bits(static_cast<std::byte*>(elts), elt_n, host::element_bytes(type), seed, elt_ix0);
  } else {
    host::put_numbers(elts, elt_n, type, elt_ix0,
                      [&](uint64_t index) { return host::small_number(red_op, rank_n, rank_me, seed, index); });
  }
  return cudaSuccess;
}

cudaError_t ncclVerifiablePrepareExpected(void* elts, intptr_t elt_n, int elt_ty, int red_op, int rank_n, uint64_t seed,
                                          intptr_t elt_ix0, cudaStream_t) {
  host::put_numbers(elts, elt_n, static_cast<ncclDataType_t>(elt_ty), elt_ix0,
                    [&](uint64_t index) { return host::expected_number(red_op, rank_n, seed, index); });
  return cudaSuccess;
}

cudaError_t ncclVerifiableVerify(const void* results, const void* expected, intptr_t elt_n, int elt_ty, int, int, uint64_t,
                                 intptr_t, int64_t* bad_elt_n, cudaStream_t) {
  if (expected == nullptr) return cudaErrorInvalidValue;  // nccl-tests always prepares it
  const std::size_t bytes = host::element_bytes(static_cast<ncclDataType_t>(elt_ty));
  const auto* got = static_cast<const std::byte*>(results);
  const auto* want = static_cast<const std::byte*>(expected);
  *bad_elt_n = 0;
  for (std::size_t at = 0; at < static_cast<std::size_t>(elt_n) * bytes; at += bytes)
    *bad_elt_n += std::memcmp(got + at, want + at, bytes) != 0 ? 1 : 0;
  return cudaSuccess;
}
