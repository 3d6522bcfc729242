#pragma once

#include <nccl.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "runtime/base/error.h"
#include "tests/nccl/cuda/cuda_bf16.h"
#include "tests/nccl/cuda/cuda_fp16.h"

namespace ferry::nccl {

/// What sums of a T are taken in: the narrow floats have no arithmetic of their own.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, half> || std::is_same_v<T, __nv_bfloat16>, float, T>;

template <class T>
T narrowed(Wide<T> value) {
  return static_cast<T>(value);
}

/// body(T{}) with the T that `type` names. Throws Error{kInvalidArgument} for one that is not known here.
template <class Body>
auto with_element_type(ncclDataType_t type, const Body& body) {
  switch (type) {
    case ncclInt8: return body(int8_t{});
    case ncclUint8: return body(uint8_t{});
    case ncclInt32: return body(int32_t{});
    case ncclUint32: return body(uint32_t{});
    case ncclInt64: return body(int64_t{});
    case ncclUint64: return body(uint64_t{});
    case ncclFloat16: return body(half{});
    case ncclBfloat16: return body(__nv_bfloat16{});
    case ncclFloat32: return body(float{});
    case ncclFloat64: return body(double{});
    default: throw_invalid("ncclDataType_t is " + std::to_string(type) + "; allowed: 0 to " + std::to_string(ncclNumTypes - 1));
  }
}

inline std::size_t element_bytes(ncclDataType_t type) {
  return with_element_type(type, [](auto element) { return sizeof(element); });
}

}  // namespace ferry::nccl
