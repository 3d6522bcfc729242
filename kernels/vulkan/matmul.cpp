#include "kernels/vulkan/matmul.h"

#include <algorithm>
#include <vector>

#include "kernels/vulkan/matmul_plan.h"
#include "kernels/vulkan/ops/views.h"
#include "kernels/vulkan/pack_weights.h"
#include "kernels/vulkan/shaders/push_matmul.h"
#include "kernels/vulkan/vulkan_stream.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

constexpr int64_t kMaxGridParts = 65535;  // workgroups along an axis, behind which they go on along the next
constexpr float kFmaProbe = 1.0F + 0x1p-12F;

/// Packed weights in a device's memory.
class VulkanMatrix final : public PackedMatrix {
 public:
  VulkanMatrix(ConstMatrixView weights, WeightUse use, Memory& memory, ThreadPool* pool)
      : VulkanMatrix(weights.rows, weights.cols, plain_weights(weights.dtype), use, memory) {
    pack_weights(weights, layout(), pool, sink(memory));
  }
  VulkanMatrix(const QuantizedMatrix& weights, WeightUse use, Memory& memory, ThreadPool* pool)
      : VulkanMatrix(weights.n, weights.k, weights.type, use, memory) {
    pack_weights(weights, layout(), pool, sink(memory));
  }

  PackedLayout layout() const { return {n(), k(), type(), is_gated()}; }
  int64_t packed_bytes() const override { return layout().bytes(); }
  uint64_t address() const { return address_of(storage_.address()); }

 private:
  VulkanMatrix(int64_t n, int64_t k, WeightType type, WeightUse use, Memory& memory) : PackedMatrix(n, k, type, use) {
    FERRY_CHECK_GE(n, 1);
    FERRY_CHECK_GE(k, 1);
    FERRY_CHECK(!is_gated() || n % 2 == 0);
    FERRY_CHECK(type.format != WeightFormat::kInt4 || k % type.group_size == 0);
    storage_ = memory.allocate(static_cast<std::size_t>(packed_bytes()));
  }
  PackedSink sink(Memory& memory) {
    return
        [this, &memory](int64_t offset, std::span<const std::byte> bytes) { memory.fill(storage_.address() + offset, bytes); };
  }

  Storage storage_;
};

/// The rows must be what the weights' type multiplies.
void check_operands(const GroupedMatmulArgs& args, const VulkanMatrix& weights) {
  const ConstMatrixView& x = args.rows.x;
  FERRY_CHECK_EQ(weights.out_cols(), args.out.cols);
  check_finish(args, weights);
  if (weights.type().is_integer()) {
    FERRY_CHECK(x.dtype == DType::kI8 && args.rows.scales.raw() != nullptr) << " quantised weights multiply quantised rows";
    FERRY_CHECK_EQ(quantized_cols(weights.k()), x.cols);
  } else {
    FERRY_CHECK(weights.type().format == WeightFormat::kE4M3 || plain_weights(x.dtype) == weights.type());
    FERRY_CHECK(x.dtype != DType::kI8 && x.dtype == args.out.dtype);
    FERRY_CHECK_EQ(weights.k(), x.cols);
  }
}

/// Whether every row of x begins and ends at a multiple of 16 bytes.
bool has_pieces(ConstMatrixView x) {
  const int64_t bytes = dtype_bytes(x.dtype);
  return address_of(x) % 16 == 0 && x.row_stride * bytes % 16 == 0 && x.cols * bytes % 16 == 0;
}

class VulkanMatmul final : public Matmul {
 public:
  VulkanMatmul(Memory& memory, const DeviceTraits& traits) : memory_(memory), traits_(traits) {}

  const char* name() const override { return "vulkan"; }
  std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights, WeightUse use, ThreadPool* pool) override {
    return std::make_unique<VulkanMatrix>(weights, use, memory_, pool);
  }
  std::unique_ptr<PackedMatrix> pack(const QuantizedMatrix& weights, WeightUse use, ThreadPool* pool) override {
    return std::make_unique<VulkanMatrix>(weights, use, memory_, pool);
  }
  void grouped_matmul(Stream& stream, const GroupedMatmulArgs& args) override;

 private:
  const VulkanMatrix* take_groups(const GroupedMatmulArgs& args);
  void cut_tiles(const GroupedMatmulArgs& args, int64_t tile_rows);

  Memory& memory_;
  DeviceTraits traits_;
  // Of the call in progress; they keep their capacity.
  std::vector<uint64_t> weights_;  // of every group, 0 where it has no rows
  std::vector<MatmulTile> tiles_;
};

/// Checks the groups and notes their weights. Returns the weights of the first that has rows, null if none has.
const VulkanMatrix* VulkanMatmul::take_groups(const GroupedMatmulArgs& args) {
  FERRY_CHECK_EQ(args.counts.size(), args.weights.size());
  FERRY_CHECK_EQ(args.rows.x.rows, args.out.rows);
  weights_.assign(args.counts.size(), 0);
  const VulkanMatrix* first = nullptr;
  int64_t num_rows = 0;
  for (std::size_t g = 0; g < args.counts.size(); ++g) {
    FERRY_CHECK_GE(args.counts[g], 0);
    if (args.counts[g] == 0) continue;
    const auto& weights = static_cast<const VulkanMatrix&>(*args.weights[g]);
    check_operands(args, weights);
    if (first == nullptr) first = &weights;
    FERRY_CHECK(weights.type() == first->type() && weights.is_gated() == first->is_gated());
    weights_[g] = weights.address();
    num_rows += args.counts[g];
  }
  FERRY_CHECK_EQ(num_rows, args.rows.x.rows);
  return first;
}

void VulkanMatmul::cut_tiles(const GroupedMatmulArgs& args, int64_t tile_rows) {
  tiles_.clear();
  int64_t first = 0;
  for (std::size_t g = 0; g < args.counts.size(); ++g) {
    for (const int64_t end = first + args.counts[g]; first < end;) {
      const int64_t rows = std::min(tile_rows, end - first);
      tiles_.push_back({.group = static_cast<uint32_t>(g),
                        .first_row = static_cast<uint32_t>(first),
                        .num_rows = static_cast<uint32_t>(rows)});
      first += rows;
    }
  }
}

void VulkanMatmul::grouped_matmul(Stream& any_stream, const GroupedMatmulArgs& args) {
  const VulkanMatrix* weights = take_groups(args);
  if (weights == nullptr) return;
  auto& stream = static_cast<VulkanStream&>(any_stream);
  const ConstMatrixView& x = args.rows.x;
  const PackedLayout layout = weights->layout();
  const auto has_rows = [](int32_t count) { return count > 0; };
  const MatmulPlan plan =
      plan_product(traits_, {.type = weights->type(),
                             .dtype = args.out.dtype,
                             .is_gated = weights->is_gated(),
                             .has_pieces = has_pieces(x),
                             .k = weights->k(),
                             .num_panels = layout.num_panels(),
                             .num_rows = x.rows,
                             .num_groups = std::count_if(args.counts.begin(), args.counts.end(), has_rows)});
  cut_tiles(args, plan.tile_rows);
  const ProductFinish& finish = args.finish;
  stream.reads(x);
  if (args.rows.scales) stream.reads(args.rows.scales, x.rows);
  if (finish.bias) stream.reads(finish.bias, args.out.cols);
  if (finish.residual.data != nullptr) stream.reads(finish.residual);
  stream.writes(args.out);
  const MatmulPush push{.x = address_of(x),
                        .x_scales = address_of(args.rows.scales),
                        .row_idx = 0,
                        .tiles = stream.upload(std::span<const MatmulTile>(tiles_)),
                        .weights = stream.upload(std::span<const uint64_t>(weights_)),
                        .result = address_of(args.out),
                        .bias = address_of(finish.bias),
                        .residual = address_of(finish.residual),
                        .x_stride = stride_of(x),
                        .result_stride = stride_of(args.out),
                        .residual_stride = stride_of(finish.residual),
                        .k = static_cast<uint32_t>(weights->k()),
                        .out_cols = static_cast<uint32_t>(args.out.cols),
                        .num_panels = static_cast<uint32_t>(layout.num_panels()),
                        .group_size = static_cast<uint32_t>(weights->type().group_size),
                        .activation = static_cast<uint32_t>(finish.activation),
                        .fma_probe = kFmaProbe};
  const int64_t parts = (layout.num_panels() + plan.part_panels - 1) / plan.part_panels;
  const int64_t folds = (parts + kMaxGridParts - 1) / kMaxGridParts;
  stream.dispatch(
      {find_shader(plan.shader, args.out.dtype), plan.constants}, push,
      {static_cast<uint32_t>(tiles_.size()), static_cast<uint32_t>((parts + folds - 1) / folds), static_cast<uint32_t>(folds)});
}

}  // namespace

std::unique_ptr<Matmul> make_vulkan_matmul(Memory& memory, const DeviceTraits& traits, DType) {
  return std::make_unique<VulkanMatmul>(memory, traits);
}

}  // namespace ferry::vulkan
