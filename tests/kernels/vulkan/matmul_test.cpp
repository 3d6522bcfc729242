#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/e4m3.h"
#include "kernels/matmul.h"
#include "kernels/vulkan/device_memory.h"
#include "kernels/vulkan/matmul.h"
#include "kernels/vulkan/vulkan_stream.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/products.h"
#include "tests/support/op_test.h"

// Products on every Vulkan device of this machine, with all of its units and with plain arithmetic alone, against the reference.

namespace ferry::vulkan {
namespace {

constexpr WeightType kInt8{WeightFormat::kInt8, 0};
constexpr WeightType int4(int32_t group_size) { return {WeightFormat::kInt4, group_size}; }
constexpr WeightType wide(int32_t group_size) { return {WeightFormat::kInt4, group_size, /*is_wide=*/true}; }
constexpr WeightType e4m3(int32_t group_size) { return {WeightFormat::kE4M3, group_size}; }

/// A way to multiply on an open device. Products of the host's rows are taken there and back.
class DeviceMatmul {
 public:
  DeviceMatmul(Device& device, const DeviceTraits& traits, std::string name)
      : name_(std::move(name)),
        memory_(device),
        backend_("vulkan", {}, make_vulkan_matmul(memory_, traits, DType::kBF16), memory_),
        stream_(backend_, pool_) {
    stream_.set_order(VulkanStream::Order::kReversed);
  }

  const std::string& name() const { return name_; }
  Matmul& matmul() { return backend_.matmul(); }
  template <class Weights>
  std::unique_ptr<PackedMatrix> pack(const Weights& weights, WeightUse use = WeightUse::kPlain) {
    return matmul().pack(weights, use, &pool_);
  }

  /// Arguments of the host.
  void run(GroupedMatmulArgs args) {
    const MatrixView out = args.out;
    Array<std::byte> x = bytes_of(args.rows.x), result = bytes_of(out), residual = bytes_of(args.finish.residual);
    const auto count = [](auto address, int64_t n) { return address ? n : 0; };
    Array<float> scales = array_of<float>(args.rows.scales, count(args.rows.scales, args.rows.x.rows));
    Array<float> bias = array_of<float>(args.finish.bias, count(args.finish.bias, out.cols));
    Array<int32_t> row_idx = array_of<int32_t>(args.row_idx, count(args.row_idx, out.rows));
    Array<int32_t> counts = array_of<int32_t>(args.device_counts, count(args.device_counts, std::ssize(args.weights)));
    place(args.rows.x, x);
    if (args.finish.residual.data == out.data) {
      args.finish.residual.data = result.data().raw();
      args.finish.residual.space = Space::kDevice;
    } else {
      place(args.finish.residual, residual);
    }
    place(args.out, result);
    if (args.rows.scales) args.rows.scales = scales.data();
    if (args.finish.bias) args.finish.bias = bias.data();
    if (args.row_idx) args.row_idx = row_idx.data();
    if (args.device_counts) args.device_counts = counts.data();
    matmul().grouped_matmul(stream_, args);
    stream_.copy(Address<const std::byte>(result.data()), Address<std::byte>(out.data),
                 static_cast<std::size_t>(result.size()));
    stream_.wait(stream_.submit());
  }
  void multiply(const MatmulRows& rows, const PackedMatrix& weights, MatrixView out, const ProductFinish& finish = {}) {
    const auto count = static_cast<int32_t>(rows.x.rows);
    const PackedMatrix* group = &weights;
    run({.rows = rows, .counts = {&count, 1}, .weights = {&group, 1}, .out = out, .finish = finish});
  }
  Matrix multiply(const MatmulRows& rows, const PackedMatrix& weights, DType dtype) {
    Matrix out(dtype, rows.x.rows, weights.out_cols());
    fill(out.view(), std::numeric_limits<float>::quiet_NaN());
    multiply(rows, weights, out.view());
    return out;
  }

 private:
  Array<std::byte> bytes_of(ConstMatrixView view) {
    if (view.data == nullptr || view.rows == 0) return {};
    const int64_t elements = (view.rows - 1) * view.row_stride + view.cols;
    return {memory_, std::span(view.data, static_cast<std::size_t>(elements * dtype_bytes(view.dtype)))};
  }
  template <class T>
  Array<T> array_of(Address<const T> first, int64_t count) {
    if (count == 0) return {};
    return {memory_, std::span(first.raw(), static_cast<std::size_t>(count))};
  }
  template <class View>
  static void place(View& view, Array<std::byte>& copy) {
    if (copy.empty()) return;
    view.data = copy.data().raw();
    view.space = Space::kDevice;
  }

  std::string name_;
  ThreadPool pool_{2};
  DeviceMemory memory_;
  Backend backend_;
  VulkanStream stream_;
};

/// Every device, once with all that it has and once without matrix units. They live as long as the process.
std::vector<DeviceMatmul*>& device_matmuls() {
  static auto& all = *new std::vector<DeviceMatmul*>([] {
    std::vector<DeviceMatmul*> made;
    for (const PhysicalDevice& physical : find_physical_devices()) {
      if (!physical.info.refusal.empty()) continue;
      auto* device = new Device(physical);
      DeviceTraits plain = device->traits();
      plain.bf16 = plain.f16 = plain.int8 = {};
      made.push_back(new DeviceMatmul(*device, plain, physical.info.name + ", plain"));
      const DeviceTraits& traits = device->traits();
      if (traits.bf16 || traits.int8) made.push_back(new DeviceMatmul(*device, traits, physical.info.name));
    }
    return made;
  }());
  return all;
}

class VulkanMatmulTest : public testing::Test {
 protected:
  void SetUp() override {
    if (device_matmuls().empty()) GTEST_SKIP() << "no Vulkan device";
  }
};

/// Random codes of every value, with scales about 2^-8 that need `mantissa_bits`; some groups are zeros.
QuantizedMatrix random_codes(WeightType type, int64_t n, int64_t k, uint32_t seed) {
  QuantizedMatrix w{.type = type, .n = n, .k = k, .group = type.group_size};
  if (type.format == WeightFormat::kInt8) w.group = k;
  const int mantissa_bits = type.is_wide ? 19 : type.format == WeightFormat::kInt4 ? 4 : 10;
  std::mt19937 generator(seed);
  for (int64_t i = 0; i < n * k; ++i) {
    auto code = static_cast<uint8_t>(generator());
    if (type.format == WeightFormat::kE4M3 && (code & 0x7F) == kE4M3NaN) code = 1;
    if (type.format == WeightFormat::kInt8 && code == 0) code = 1;
    w.codes.push_back(type.format == WeightFormat::kInt4 ? code % 16 : code);
  }
  for (int64_t i = 0; i < n * w.num_groups(); ++i) {
    const uint32_t mantissa = static_cast<uint32_t>(generator()) >> (32 - mantissa_bits) << (23 - mantissa_bits);
    const uint32_t sign = type.is_wide ? static_cast<uint32_t>(generator()) & 0x80000000U : 0;
    w.scales.push_back(generator() % 16 == 0 ? 0.0F : std::bit_cast<float>(sign | uint32_t{119} << 23 | mantissa));
    if (type.format == WeightFormat::kInt4) w.zero_points.push_back(static_cast<uint8_t>(generator() % 16));
    if (type.format == WeightFormat::kInt8) w.zero_points.push_back(128);
  }
  return w;
}

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

void expect_rows_alone(DeviceMatmul& device, const MatmulRows& rows, const PackedMatrix& packed, DType dtype,
                       const std::string& what) {
  const int64_t num_rows = rows.x.rows;
  const Matrix whole = device.multiply(rows, packed, dtype);
  for (const int64_t count : {1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 129, 200, 299}) {
    if (count > num_rows) continue;
    const int64_t first = (count * 13) % (num_rows - count + 1);
    expect_same_bits(whole.view().rows_from(first, count), device.multiply(rows.rows_from(first, count), packed, dtype).view(),
                     device.name() + " " + what + " rows " + std::to_string(count));
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

/// The sums are those of plain weights, and the rest is a few operations of the host.
void expect_swiglu(DeviceMatmul& device, const MatmulRows& rows, const PackedMatrix& plain, const PackedMatrix& gated,
                   DType dtype, const std::string& what) {
  const Matrix products = device.multiply(rows, plain, dtype);
  Matrix expected(dtype, rows.x.rows, plain.n() / 2);
  test::TestStream stream(1);
  select_op_table("ref").swiglu(stream, {.gate_up = products.view(), .out = expected.view()});
  EXPECT_EQ(gated.out_cols(), plain.n() / 2);
  const Matrix got = device.multiply(rows, gated, dtype);
  EXPECT_TRUE(test::all_close(got.view(), expected.view(),
                              {.absolute = 1e-30, .relative = dtype == DType::kF32 ? 4e-6 : 0.016, .unequal_fraction = 1.0}))
      << device.name() << " " << what;
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

struct CodesCase {
  WeightType type;
  int64_t n, k;
  std::string text() const { return weight_type_name(type) + " n " + std::to_string(n) + " k " + std::to_string(k); }
};

TEST_F(VulkanMatmulTest, IntegersHaveTheBitsOfTheReference) {
  const auto ref = make_ref_matmul();
  for (const CodesCase& c :
       {CodesCase{kInt8, 1, 1}, CodesCase{kInt8, 33, 77}, CodesCase{kInt8, 100, 2100}, CodesCase{kInt8, 50, 200},
        CodesCase{int4(32), 1, 32}, CodesCase{int4(32), 70, 96}, CodesCase{int4(64), 33, 64}, CodesCase{int4(64), 100, 1344},
        CodesCase{int4(128), 40, 256}, CodesCase{int4(256), 17, 5120}, CodesCase{wide(32), 33, 96},
        CodesCase{wide(64), 70, 192}, CodesCase{wide(128), 40, 4096}, CodesCase{wide(256), 17, 512}}) {
    const QuantizedMatrix w = random_codes(c.type, c.n, c.k, 3);
    const auto ref_packed = ref->pack(w);
    for (const int64_t num_rows : {1, 2, 3, 16, 17, 50, 130}) {
      const CodedRows rows = random_matrix(DType::kBF16, num_rows, c.k, 4);
      for (const DType dtype : kBothDTypes) {
        const Matrix expected = ferry::multiply(*ref, rows.view(), *ref_packed, dtype);
        for (DeviceMatmul* device : device_matmuls()) {
          expect_same_bits(expected.view(), device->multiply(rows.view(), *device->pack(w), dtype).view(),
                           device->name() + " " + c.text() + " rows " + std::to_string(num_rows));
        }
      }
    }
  }
}

TEST_F(VulkanMatmulTest, GroupsOfCodesHaveTheBitsOfTheReference) {
  const std::vector<int32_t> counts = {0, 3, 0, 70, 1, 129};
  const int64_t num_rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const auto ref = make_ref_matmul();
  for (const CodesCase& c : {CodesCase{kInt8, 90, 128}, CodesCase{int4(64), 90, 128}, CodesCase{wide(32), 90, 160}}) {
    const CodedRows rows = random_matrix(DType::kBF16, num_rows, c.k, 9);
    for (DeviceMatmul* device : device_matmuls()) {
      std::vector<std::unique_ptr<PackedMatrix>> owners, ref_owners;
      std::vector<const PackedMatrix*> weights, ref_weights;
      for (std::size_t g = 0; g < counts.size(); ++g) {
        const QuantizedMatrix codes = random_codes(c.type, c.n, c.k, static_cast<uint32_t>(20 + g));
        owners.push_back(device->pack(codes));
        ref_owners.push_back(ref->pack(codes));
        weights.push_back(counts[g] == 0 ? nullptr : owners.back().get());
        ref_weights.push_back(ref_owners.back().get());
      }
      Matrix out(DType::kBF16, num_rows, c.n), expected(DType::kBF16, num_rows, c.n);
      test::TestStream stream(1);
      ref->grouped_matmul(stream, {.rows = rows.view(), .counts = counts, .weights = ref_weights, .out = expected.view()});
      device->run({.rows = rows.view(), .counts = counts, .weights = weights, .out = out.view()});
      expect_same_bits(expected.view(), out.view(), device->name() + " " + c.text());
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
