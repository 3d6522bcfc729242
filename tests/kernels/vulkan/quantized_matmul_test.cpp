#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/e4m3.h"
#include "tests/kernels/vulkan/device_matmul.h"

// Products of weights in codes on devices, beside what product_cases.cpp asks of them.

namespace ferry::vulkan {
namespace {

TEST_F(VulkanMatmulTest, GatedCodesGiveSwiglu) {
  for (const WeightType type : {kInt8, int4(32), int4(128), wide(64), e4m3(128)}) {
    const QuantizedMatrix w = random_codes(type, 66, 128, 7);
    for (const int64_t num_rows : {3, 100}) {
      const Matrix x = random_matrix(DType::kBF16, num_rows, 128, 8);
      const CodedRows codes(x);
      for (DeviceMatmul* device : device_matmuls()) {
        expect_swiglu(*device, type.is_integer() ? codes.view() : MatmulRows{x.view()}, *device->pack(w),
                      *device->pack(w, WeightUse::kGated), DType::kBF16, weight_type_name(type));
      }
    }
  }
}

/// What matmul.h and ops.h promise of extreme values.
TEST_F(VulkanMatmulTest, ExtremeRowsOfCodes) {
  for (const CodesCase& c : {CodesCase{kInt8, 40, 128}, CodesCase{int4(64), 40, 128}}) {
    Matrix x = random_matrix(DType::kF32, 20, c.k, 11);
    for (int64_t k = 0; k < c.k; ++k) set_element(x.view(), 0, k, 0.0F);
    set_element(x.view(), 3, 9, std::numeric_limits<float>::quiet_NaN());
    set_element(x.view(), 4, 9, std::numeric_limits<float>::infinity());
    const CodedRows rows(x);
    for (DeviceMatmul* device : device_matmuls()) {
      const Matrix out = device->multiply(rows.view(), *device->pack(random_codes(c.type, c.n, c.k, 10)), DType::kF32);
      for (int64_t n = 0; n < c.n; ++n) {
        EXPECT_EQ(element(out.view(), 0, n), 0.0F) << "a row of zeros";
        EXPECT_TRUE(std::isnan(element(out.view(), 3, n)));
        EXPECT_TRUE(std::isnan(element(out.view(), 4, n)));
        EXPECT_TRUE(std::isfinite(element(out.view(), 5, n)));
      }
    }
  }
}

/// A row with a single one picks one weight, which every kernel must hand out exactly.
TEST_F(VulkanMatmulTest, EveryE4M3CodeIsExact) {
  constexpr int64_t kCols = 3, kRows = 256;
  QuantizedMatrix w{.type = e4m3(32), .n = kCols, .k = kRows, .group = 32};
  for (int64_t i = 0; i < kCols * kRows; ++i) {
    const auto code = static_cast<uint8_t>(i % kRows);
    w.codes.push_back((code & 0x7F) == kE4M3NaN ? 0 : code);
  }
  w.scales.assign(static_cast<std::size_t>(kCols * w.num_groups()), 0.0078125F);
  for (const DType dtype : kBothDTypes) {
    Matrix x(dtype, kRows, kRows);
    fill(x.view(), 0.0F);
    for (int64_t i = 0; i < kRows; ++i) set_element(x.view(), i, i, 1.0F);
    for (DeviceMatmul* device : device_matmuls()) {
      const Matrix out = device->multiply({x.view()}, *device->pack(w), dtype);
      for (int64_t i = 0; i < kRows; ++i) {
        for (int64_t n = 0; n < kCols; ++n) {
          ASSERT_EQ(element(out.view(), i, n), w.value(n, i)) << device->name() << " " << dtype_name(dtype) << " code " << i;
        }
      }
    }
  }
}

TEST_F(VulkanMatmulTest, E4M3EqualsTheReferenceAtOddSizes) {
  const auto ref = make_ref_matmul();
  for (const CodesCase& c : {CodesCase{e4m3(32), 1, 1}, CodesCase{e4m3(128), 33, 80}, CodesCase{e4m3(128), 70, 160},
                             CodesCase{e4m3(64), 100, 257}, CodesCase{e4m3(256), 32, 2563}}) {
    const QuantizedMatrix w = random_codes(c.type, c.n, c.k, 3);
    for (const DType dtype : kBothDTypes) {
      for (const int64_t num_rows : {1, 2, 13, 33, 130}) {
        const Matrix x = random_matrix(dtype, num_rows, c.k, 4);
        const Matrix expected = ferry::multiply(*ref, {x.view()}, *ref->pack(w), dtype);
        for (DeviceMatmul* device : device_matmuls()) {
          expect_close(expected.view(), device->multiply({x.view()}, *device->pack(w), dtype).view(), 3e-6F,
                       device->name() + " " + dtype_name(dtype) + " " + c.text() + " rows " + std::to_string(num_rows));
        }
      }
    }
  }
}

}  // namespace
}  // namespace ferry::vulkan
