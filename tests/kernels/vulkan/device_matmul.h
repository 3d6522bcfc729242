#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/vulkan/device_memory.h"
#include "kernels/vulkan/matmul.h"
#include "kernels/vulkan/vulkan_stream.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/product_cases.h"
#include "tests/kernels/products.h"
#include "tests/support/compare.h"

// Products on every Vulkan device of this machine, with all of its units and with plain arithmetic alone, and weights for them.

namespace ferry::vulkan {

/// A way to multiply on an open device. Products of the host's rows are taken there and back.
class DeviceMatmul final : public Multiplier {
 public:
  DeviceMatmul(Device& device, const DeviceTraits& traits, std::string name)
      : name_(std::move(name)),
        memory_(device),
        backend_("vulkan", {}, make_vulkan_matmul(memory_, traits, DType::kBF16), memory_),
        stream_(backend_, pool_) {
    stream_.set_order(VulkanStream::Order::kReversed);
  }

  const std::string& name() const override { return name_; }
  std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights, WeightUse use = WeightUse::kPlain) override {
    return backend_.matmul().pack(weights, use, &pool_);
  }
  std::unique_ptr<PackedMatrix> pack(const QuantizedMatrix& weights, WeightUse use = WeightUse::kPlain) override {
    return backend_.matmul().pack(weights, use, &pool_);
  }

  void run(const GroupedMatmulArgs& host_args) override {
    GroupedMatmulArgs args = host_args;
    const MatrixView out = args.out;
    Array<std::byte> x = bytes_of(args.rows.x), result = bytes_of(out), residual = bytes_of(args.finish.residual);
    const auto count = [](auto address, int64_t n) { return address ? n : 0; };
    Array<float> scales = array_of<float>(args.rows.scales, count(args.rows.scales, args.rows.x.rows));
    Array<float> bias = array_of<float>(args.finish.bias, count(args.finish.bias, out.cols));
    Array<int32_t> row_idx = array_of<int32_t>(args.row_idx, count(args.row_idx, out.rows));
    Array<int32_t> counts = array_of<int32_t>(args.device_counts, count(args.device_counts, std::ssize(args.weights)));
    Array<RowRun> row_runs = array_of<RowRun>(args.row_runs, count(args.row_runs, out.rows));
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
    if (args.row_runs) args.row_runs = row_runs.data();
    backend_.matmul().grouped_matmul(stream_, args);
    stream_.copy(Address<const std::byte>(result.data()), Address<std::byte>(out.data),
                 static_cast<std::size_t>(result.size()));
    stream_.wait(stream_.submit());
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
inline std::vector<DeviceMatmul*>& device_matmuls() {
  static std::vector<DeviceMatmul*> all = [] {
    std::vector<DeviceMatmul*> made;
    for (const PhysicalDevice& physical : find_physical_devices()) {
      if (!physical.info.refusal.empty()) continue;
      Device& device = *std::make_unique<Device>(physical).release();
      const DeviceTraits& traits = device.traits();
      DeviceTraits plain = traits;
      plain.bf16 = plain.f16 = plain.int8 = {};
      made.push_back(std::make_unique<DeviceMatmul>(device, plain, physical.info.name + ", plain").release());
      if (traits.bf16 || traits.int8)
        made.push_back(std::make_unique<DeviceMatmul>(device, traits, physical.info.name).release());
    }
    return made;
  }();
  return all;
}

class VulkanMatmulTest : public testing::Test {
 protected:
  void SetUp() override {
    if (device_matmuls().empty()) GTEST_SKIP() << "no Vulkan device";
  }
};

inline void expect_rows_alone(DeviceMatmul& device, const MatmulRows& rows, const PackedMatrix& packed, DType dtype,
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

/// The sums are those of plain weights, and the rest is a few operations of the host.
inline void expect_swiglu(DeviceMatmul& device, const MatmulRows& rows, const PackedMatrix& plain, const PackedMatrix& gated,
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

}  // namespace ferry::vulkan
