#pragma once

#include "kernels/tensor.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {

inline void check_same_shape(const ConstMatrixView& a, const ConstMatrixView& b) {
  FERRY_CHECK_EQ(a.rows, b.rows);
  FERRY_CHECK_EQ(a.cols, b.cols);
  FERRY_CHECK(a.dtype == b.dtype);
}

}  // namespace ferry::vulkan
