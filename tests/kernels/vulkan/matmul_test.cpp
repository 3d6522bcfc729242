#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/vulkan/device_matmul.h"
#include "tests/support/op_test.h"

// Products of plain weights against the reference, and what all products have in common.

namespace ferry::vulkan {
namespace {

struct Shape {
  int64_t rows, n, k;
  std::string text() const { return std::to_string(rows) + " x " + std::to_string(n) + " x " + std::to_string(k); }
};

const std::vector<Shape> kOddShapes = {{1, 1, 1},     {1, 31, 6},    {7, 33, 77},    {64, 32, 16}, {65, 100, 257},
                                       {70, 6, 300},  {3, 77, 1},    {130, 40, 515}, {9, 600, 31}, {17, 33, 1100},
                                       {2, 64, 2080}, {33, 129, 64}, {129, 257, 96}};

TEST_F(VulkanMatmulTest, EqualsReferenceOnStridedViews) {
  const auto ref = make_ref_matmul();
  for (const DType dtype : kBothDTypes) {
    for (const Shape shape : kOddShapes) {
      test::TestMatrix x(dtype, shape.rows, shape.k, 5), w(dtype, shape.n, shape.k, 3);
      x.fill_random(1);
      w.fill_random(2);
      const Matrix expected = ferry::multiply(*ref, {x.view()}, *ref->pack(w.view()), dtype);
      for (DeviceMatmul* device : device_matmuls()) {
        test::TestMatrix out(dtype, shape.rows, shape.n, 4);
        device->multiply({x.view()}, *device->pack(w.view()), out.view());
        const std::string what = device->name() + " " + dtype_name(dtype) + " " + shape.text();
        expect_close(expected.view(), out.view(), 2e-6F, what);
        EXPECT_TRUE(out.padding_intact()) << what << ": wrote between the rows";
      }
    }
  }
}

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

TEST_F(VulkanMatmulTest, NanStaysInItsRow) {
  for (const DType dtype : kBothDTypes) {
    for (DeviceMatmul* device : device_matmuls()) {
      Matrix x = random_matrix(dtype, 11, 40, 5);
      const auto packed = device->pack(random_matrix(dtype, 35, 40, 6).view());
      const Matrix clean = device->multiply({x.view()}, *packed, dtype);
      set_element(x.view(), 4, 39, std::numeric_limits<float>::quiet_NaN());
      const Matrix dirty = device->multiply({x.view()}, *packed, dtype);
      expect_same_bits(clean.view().rows_from(0, 4), dirty.view().rows_from(0, 4), "rows above");
      expect_same_bits(clean.view().rows_from(5, 6), dirty.view().rows_from(5, 6), "rows below");
      for (int64_t c = 0; c < 35; ++c) EXPECT_TRUE(std::isnan(element(dirty.view(), 4, c))) << "column " << c;
    }
  }
}

TEST_F(VulkanMatmulTest, GroupsEqualSingleProducts) {
  const std::vector<int32_t> counts = {0, 3, 0, 70, 1, 0, 129, 0};
  for (const DType dtype : kBothDTypes) {
    const Matrix x = random_matrix(dtype, 203, 37, 7);
    for (DeviceMatmul* device : device_matmuls()) {
      std::vector<std::unique_ptr<PackedMatrix>> owners;
      std::vector<const PackedMatrix*> weights(counts.size(), nullptr);
      for (std::size_t g = 0; g < counts.size(); ++g) {
        if (counts[g] == 0) continue;
        owners.push_back(device->pack(random_matrix(dtype, 290, 37, static_cast<uint32_t>(100 + g)).view()));
        weights[g] = owners.back().get();
      }
      Matrix out(dtype, 203, 290);
      device->run({.rows = {x.view()}, .counts = counts, .weights = weights, .out = out.view()});
      int64_t first = 0;
      for (std::size_t g = 0; g < counts.size(); first += counts[g++]) {
        if (counts[g] == 0) continue;
        const Matrix single = device->multiply({x.view().rows_from(first, counts[g])}, *weights[g], dtype);
        expect_same_bits(single.view(), out.view().rows_from(first, counts[g]), device->name() + " group " + std::to_string(g));
      }
    }
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

TEST_F(VulkanMatmulTest, NoRowsIsNoWork) {
  for (DeviceMatmul* device : device_matmuls()) {
    const std::vector<int32_t> counts = {0, 0};
    const std::vector<const PackedMatrix*> weights = {nullptr, nullptr};
    Matrix x(DType::kF32, 1, 8), out(DType::kF32, 1, 9);
    device->run({.rows = {x.top(0)}, .counts = counts, .weights = weights, .out = out.top(0)});
  }
}

TEST_F(VulkanMatmulTest, GatedWeightsGiveSwiglu) {
  for (const DType dtype : kBothDTypes) {
    for (const Shape shape : {Shape{1, 2, 5}, Shape{3, 30, 64}, Shape{17, 64, 33}, Shape{40, 202, 96}, Shape{90, 70, 700}}) {
      const Matrix x = random_matrix(dtype, shape.rows, shape.k, 11), w = random_matrix(dtype, shape.n, shape.k, 12, 0.3F);
      for (DeviceMatmul* device : device_matmuls()) {
        expect_swiglu(*device, {x.view()}, *device->pack(w.view()), *device->pack(w.view(), WeightUse::kGated), dtype,
                      std::string(dtype_name(dtype)) + " " + shape.text());
      }
    }
  }
}

TEST_F(VulkanMatmulTest, FinishesWithABias) {
  const auto ref = make_ref_matmul();
  for (const DType dtype : kBothDTypes) {
    for (const Shape shape : {Shape{1, 1, 8}, Shape{3, 33, 40}, Shape{33, 64, 31}, Shape{130, 300, 96}}) {
      const Matrix x = random_matrix(dtype, shape.rows, shape.k, 21), w = random_matrix(dtype, shape.n, shape.k, 22, 0.3F);
      const Matrix residual = random_matrix(dtype, shape.rows, shape.n, 23), bias = random_matrix(DType::kF32, 1, shape.n, 24);
      const float* first = bias.view().row<float>(0);
      const std::vector<ProductFinish> finishes = {{.bias = first},
                                                   {.bias = first, .activation = BiasActivation::kGeluTanh},
                                                   {.bias = first, .activation = BiasActivation::kGelu},
                                                   {.bias = first, .residual = residual.view()}};
      for (std::size_t f = 0; f < finishes.size(); ++f) {
        Matrix expected(dtype, shape.rows, shape.n);
        test::TestStream stream(2);
        ref->matmul(stream, {x.view()}, *ref->pack(w.view()), expected.view(), finishes[f]);
        for (DeviceMatmul* device : device_matmuls()) {
          // The residual is where the result goes, as in a stream.
          test::TestMatrix out(dtype, shape.rows, shape.n, 4);
          ProductFinish finish = finishes[f];
          if (finish.residual.data != nullptr) {
            out.fill_random(23);
            finish.residual = out.view();
          }
          device->multiply({x.view()}, *device->pack(w.view()), out.view(), finish);
          const std::string what =
              device->name() + " " + dtype_name(dtype) + " " + shape.text() + " finish " + std::to_string(f);
          expect_close(expected.view(), out.view(), 2e-6F, what);
          EXPECT_TRUE(out.padding_intact()) << what << ": wrote between the rows";
        }
      }
    }
  }
}

}  // namespace
}  // namespace ferry::vulkan
