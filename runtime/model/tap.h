#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/tensor.h"

namespace ferry {

/// Sees intermediates by name ("hidden", …); used by parity tests and `ferry dump`. `layer` of a matrix is as the fixtures
/// count: 0 the embeddings, K after layer K.
struct Tap {
  std::function<void(const char* name, int64_t layer, ConstMatrixView values)> matrix;
  std::function<void(int64_t layer, std::span<const int32_t> ids, std::span<const float> weights)> routing;  // [T, top_k] each
};

}  // namespace ferry
