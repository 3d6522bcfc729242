#include "kernels/vulkan/row_proof.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/backend.h"
#include "kernels/vulkan/matmul_plan.h"
#include "kernels/vulkan/pack_weights.h"

namespace ferry::vulkan {
namespace {

constexpr int32_t kNumSamples = 61;  // different rows, of which all others are copies

using Random = std::mt19937;

int32_t random_below(Random& random, int32_t end) { return static_cast<int32_t>(random() % static_cast<uint32_t>(end)); }

/// Of either sign and magnitudes from 2^-7 to 2^6, so that another order of sums gives other bits.
float random_value(Random& random) {
  const float fraction = static_cast<float>(random() >> 8) * 0x1p-23F - 1.0F;
  return std::ldexp(fraction, random_below(random, 14) - 7);
}

Matrix random_values(Random& random, DType dtype, int64_t rows, int64_t cols) {
  Matrix matrix(dtype, rows, cols);
  visit_dtype(dtype, [&]<class T>() {
    T* values = matrix.view().row<T>(0);
    for (int64_t i = 0; i < rows * cols; ++i) values[i] = from_float<T>(random_value(random));
  });
  return matrix;
}

QuantizedMatrix random_codes(Random& random, WeightType type, int64_t n, int64_t k) {
  const bool is_int4 = type.format == WeightFormat::kInt4;
  QuantizedMatrix w{.type = type, .n = n, .k = k, .group = is_int4 ? type.group_size : k};
  for (int64_t i = 0; i < n * k; ++i)
    w.codes.push_back(static_cast<uint8_t>(is_int4 ? random_below(random, 16) : 1 + random_below(random, 255)));
  for (int64_t i = 0; i < n * w.num_groups(); ++i) {
    w.scales.push_back(std::ldexp(1.0F + 0.25F * static_cast<float>(random_below(random, 4)), -8));
    w.zero_points.push_back(static_cast<uint8_t>(is_int4 ? random_below(random, 16) : 128));
  }
  return w;
}

/// Different rows, and scales if they are codes. Of values the first is infinite: its neighbours must not see it.
struct Samples {
  Samples(Random& random, const RowProof& proof) {
    if (!proof.type.is_integer()) {
      x = random_values(random, proof.dtype, kNumSamples, proof.k);
      visit_dtype(proof.dtype, [&]<class T>() {
        std::fill_n(x.view().row<T>(0), proof.k, from_float<T>(std::numeric_limits<float>::infinity()));
      });
      return;
    }
    x = Matrix(DType::kI8, kNumSamples, quantized_cols(proof.k));
    for (int64_t r = 0; r < kNumSamples; ++r) {
      for (int64_t c = 0; c < proof.k; ++c) x.view().row<int8_t>(r)[c] = static_cast<int8_t>(random_below(random, 255) - 127);
    }
    scales = random_values(random, DType::kF32, kNumSamples, 1);
  }

  Matrix x, scales;
};

/// Copies of `rows` in a backend's memory: row i of row picked[i].
Matrix copies(Stream& stream, const Matrix& rows, const std::vector<int32_t>& picked) {
  const auto num_rows = std::ssize(picked);
  Matrix host(rows.dtype(), num_rows, rows.cols()), there(stream.memory(), rows.dtype(), num_rows, rows.cols());
  const auto row_bytes = static_cast<std::size_t>(rows.cols() * dtype_bytes(rows.dtype()));
  for (int64_t r = 0; r < num_rows; ++r)
    std::memcpy(host.view().row_bytes(r), rows.view().row_bytes(picked[static_cast<std::size_t>(r)]), row_bytes);
  copy_rows(stream, host.view(), there.view());
  return there;
}

/// The products of the samples that are picked, in groups of as many rows as `counts` says.
Matrix products_of(Stream& stream, const Samples& samples, const std::vector<int32_t>& picked,
                   const std::vector<int32_t>& counts, const PackedMatrix& weights, DType dtype) {
  const Matrix x = copies(stream, samples.x, picked);
  const Matrix scales = samples.scales.rows() > 0 ? copies(stream, samples.scales, picked) : Matrix();
  Matrix out(stream.memory(), dtype, x.rows(), weights.out_cols()), host(dtype, x.rows(), weights.out_cols());
  const ConstMatrixView s = scales.view();
  const std::vector<const PackedMatrix*> groups(counts.size(), &weights);
  grouped_matmul(stream, {.rows = {x.view(), {reinterpret_cast<const float*>(s.data), s.space}},
                          .counts = counts,
                          .weights = groups,
                          .out = out.view()});
  copy_rows(stream, out.view(), host.view());
  stream.wait(stream.submit());
  return host;
}

std::vector<int32_t> counts_of(const RowProof::Batch& batch) {
  std::vector<int32_t> counts;
  for (int64_t g = 0; g < batch.num_groups; ++g) {
    const int64_t first = g * batch.num_rows / batch.num_groups, end = (g + 1) * batch.num_rows / batch.num_groups;
    counts.push_back(static_cast<int32_t>(end - first));
  }
  return counts;
}

}  // namespace

RowProof make_row_proof(const DeviceTraits& traits, WeightType type, DType dtype) {
  constexpr int64_t kMostRows = 8192;
  // K has a whole segment of sums and a part of one. Few groups have many rows each, many groups a few tens.
  RowProof proof{.type = type, .dtype = dtype, .n = 512, .k = 1088, .batches = {}};
  std::set<std::pair<std::string_view, int64_t>> covered;  // shaders and rows of a tile
  for (const int64_t num_groups : {1, 2, 64}) {
    for (int64_t num_rows = 16 * num_groups; num_rows <= kMostRows; num_rows *= 2) {
      const MatmulPlan plan = plan_product(traits, {.type = type,
                                                    .dtype = dtype,
                                                    .has_pieces = true,
                                                    .k = proof.k,
                                                    .num_panels = PackedLayout{proof.n, proof.k, type, false}.num_panels(),
                                                    .num_rows = num_rows,
                                                    .num_groups = num_groups});
      if (covered.emplace(plan.shader, plan.tile_rows).second) proof.batches.push_back({num_rows, num_groups});
    }
  }
  return proof;
}

bool rows_stand_alone(Stream& stream, const RowProof& proof) {
  Random random(1);
  Matmul& matmul = stream.backend().matmul();
  const std::unique_ptr<PackedMatrix> weights = proof.type.is_integer()
                                                    ? matmul.pack(random_codes(random, proof.type, proof.n, proof.k))
                                                    : matmul.pack(random_values(random, proof.dtype, proof.n, proof.k).view());
  const Samples samples(random, proof);
  std::vector<int32_t> picked(kNumSamples);
  std::iota(picked.begin(), picked.end(), 0);
  const Matrix alone = products_of(stream, samples, picked, std::vector<int32_t>(kNumSamples, 1), *weights, proof.dtype);
  const auto row_bytes = static_cast<std::size_t>(proof.n * dtype_bytes(proof.dtype));
  for (const RowProof::Batch& batch : proof.batches) {
    picked.resize(static_cast<std::size_t>(batch.num_rows));
    for (int32_t& sample : picked) sample = random_below(random, kNumSamples);
    const Matrix together = products_of(stream, samples, picked, counts_of(batch), *weights, proof.dtype);
    for (int64_t r = 0; r < batch.num_rows; ++r) {
      const int32_t sample = picked[static_cast<std::size_t>(r)];
      const bool is_compared = sample > 0;  // not a NaN's bits
      if (is_compared && std::memcmp(together.view().row_bytes(r), alone.view().row_bytes(sample), row_bytes) != 0)
        return false;
    }
  }
  return true;
}

std::vector<WeightType> types_of_matrices(const DeviceTraits& traits, DType dtype) {
  std::vector<WeightType> types;
  for (const WeightType type :
       {plain_weights(dtype), WeightType{WeightFormat::kInt8}, WeightType{WeightFormat::kInt4, kDefaultGroupSize}}) {
    if (has_matrices(traits, type)) types.push_back(type);
  }
  return types;
}

void drop_untrusted(PhysicalDevice& device, const std::vector<WeightType>& types,
                    const std::function<bool(WeightType)>& stand_alone) {
  for (const WeightType type : types) {
    Fragment& fragment = type.is_integer() ? device.traits.int8 : device.traits.bf16;
    if (!fragment || stand_alone(type)) continue;
    device.info.faults.push_back(fragment_text(type.is_integer() ? "int8" : "bf16", fragment));
    fragment = {};
  }
  device.info.abilities = name_abilities(device.traits);
}

}  // namespace ferry::vulkan
