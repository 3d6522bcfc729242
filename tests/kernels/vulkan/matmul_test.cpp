#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/vulkan/device_matmul.h"
#include "tests/support/op_test.h"

// Products on devices, beside what product_cases.cpp asks of them.

namespace ferry::vulkan {
namespace {

/// What is aligned is loaded in another way.
TEST_F(VulkanMatmulTest, StridesDoNotChangeARow) {
  for (const DType dtype : kBothDTypes) {
    const Matrix x = random_matrix(dtype, 40, 1040, 31), w = random_matrix(dtype, 50, 1040, 32);
    test::TestMatrix strided(dtype, 40, 1040, 1);
    for (int64_t r = 0; r < 40; ++r) {
      for (int64_t c = 0; c < 1040; ++c) strided.set(r, c, element(x.view(), r, c));
    }
    for (DeviceMatmul* device : device_matmuls()) {
      const auto packed = device->pack(w.view());
      expect_same_bits(device->multiply({x.view()}, *packed, dtype).view(),
                       device->multiply({strided.view()}, *packed, dtype).view(), device->name());
    }
  }
}

TEST_F(VulkanMatmulTest, RowDoesNotDependOnTheBatch) {
  for (const DType dtype : kBothDTypes) {
    const Matrix x = random_matrix(dtype, 300, 1100, 3), w = random_matrix(dtype, 77, 1100, 4);
    for (DeviceMatmul* device : device_matmuls())
      expect_rows_alone(*device, {x.view()}, *device->pack(w.view()), dtype, dtype_name(dtype));
    const QuantizedMatrix stored = random_codes(e4m3(128), 77, 1100, 5);
    for (DeviceMatmul* device : device_matmuls())
      expect_rows_alone(*device, {x.view()}, *device->pack(stored), dtype, std::string("e4m3 ") + dtype_name(dtype));
  }
}

/// Where experts' lists are the device's: how many rows each takes, and which.
TEST_F(VulkanMatmulTest, CountsAndRowsOfTheDeviceGiveTheSameBits) {
  const std::vector<int32_t> counts = {2, 0, 40, 1, 0, 17, 0}, rows = [] {
    std::vector<int32_t> picked;
    for (int32_t i = 0; i < 60; ++i) picked.push_back(i * 7 % 20);
    return picked;
  }();
  std::vector<RowRun> runs;
  for (std::size_t g = 0; g < counts.size(); ++g) {
    runs.insert(runs.end(), static_cast<std::size_t>(counts[g]),
                {.group = static_cast<int32_t>(g), .first_row = static_cast<int32_t>(runs.size()), .num_rows = counts[g]});
  }
  for (const WeightType type : {WeightType{WeightFormat::kBF16}, kInt8, int4(64)}) {
    const Matrix x = random_matrix(DType::kBF16, 20, 192, 41);
    const CodedRows codes(x);
    const MatmulRows from = type.is_integer() ? codes.view() : MatmulRows{x.view()};
    for (DeviceMatmul* device : device_matmuls()) {
      std::vector<std::unique_ptr<PackedMatrix>> owners;
      std::vector<const PackedMatrix*> weights;
      for (uint32_t g = 0; g < counts.size(); ++g) {
        owners.push_back(type.is_integer() ? device->pack(random_codes(type, 70, 192, g))
                                           : device->pack(random_matrix(DType::kBF16, 70, 192, g).view()));
        weights.push_back(owners.back().get());
      }
      Matrix expected(DType::kBF16, 60, 70), got(DType::kBF16, 60, 70);
      device->run({.rows = from, .counts = counts, .weights = weights, .out = expected.view(), .row_idx = rows.data()});
      device->run(
          {.rows = from, .weights = weights, .out = got.view(), .device_counts = counts.data(), .row_idx = rows.data()});
      expect_same_bits(expected.view(), got.view(), device->name() + " " + weight_type_name(type));
      fill(got.view(), std::numeric_limits<float>::quiet_NaN());
      device->run({.rows = from,
                   .weights = weights,
                   .out = got.view(),
                   .device_counts = counts.data(),
                   .row_runs = runs.data(),
                   .row_idx = rows.data()});
      expect_same_bits(expected.view(), got.view(), device->name() + " by runs, " + weight_type_name(type));
      for (const int64_t row : {0, 2, 41, 42, 43, 59}) {  // of groups 0, 2, 3 and 5
        const std::size_t group = row < 2 ? 0 : row < 42 ? 2 : row < 43 ? 3 : 5;
        const Matrix alone =
            device->multiply(from.rows_from(rows[static_cast<std::size_t>(row)], 1), *weights[group], DType::kBF16);
        expect_same_bits(alone.view(), got.view().rows_from(row, 1), device->name() + " row " + std::to_string(row));
      }
    }
  }
}

TEST_F(VulkanMatmulTest, GatedWeightsGiveSwiglu) {
  for (const DType dtype : kBothDTypes) {
    for (const ShapeCase shape :
         {ShapeCase{1, 2, 5}, ShapeCase{3, 30, 64}, ShapeCase{17, 64, 33}, ShapeCase{40, 202, 96}, ShapeCase{90, 70, 700}}) {
      const Matrix x = random_matrix(dtype, shape.rows, shape.k, 11), w = random_matrix(dtype, shape.n, shape.k, 12, 0.3F);
      for (DeviceMatmul* device : device_matmuls()) {
        expect_swiglu(*device, {x.view()}, *device->pack(w.view()), *device->pack(w.view(), WeightUse::kGated), dtype,
                      std::string(dtype_name(dtype)) + " " + shape.text());
      }
    }
  }
}

}  // namespace
}  // namespace ferry::vulkan

std::vector<ferry::Multiplier*> ferry::multipliers() {
  const std::vector<vulkan::DeviceMatmul*>& devices = vulkan::device_matmuls();
  return {devices.begin(), devices.end()};
}
