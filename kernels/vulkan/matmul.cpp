#include "kernels/vulkan/matmul.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "kernels/vulkan/matmul_plan.h"
#include "kernels/vulkan/ops/views.h"
#include "kernels/vulkan/pack_weights.h"
#include "kernels/vulkan/shaders/push_matmul.h"
#include "kernels/vulkan/vulkan_stream.h"
#include "runtime/base/check.h"
#include "runtime/base/memory_use.h"

namespace ferry::vulkan {
namespace {

static_assert(sizeof(RowRun) == sizeof(MatmulTile));

constexpr int64_t kMaxGridParts = 65535;  // workgroups along an axis, behind which they go on along the next
constexpr int64_t kMostRunRows = 1024;
constexpr float kFmaProbe = 1.0F + 0x1p-12F;

/// Packed weights in a device's memory.
class VulkanMatrix final : public PackedMatrix {
 public:
  VulkanMatrix(ConstMatrixView weights, WeightUse use, Memory& memory, ThreadPool* pool)
      : VulkanMatrix(weights.rows, weights.cols, plain_weights(weights.dtype), use, memory) {
    pack_weights(weights, layout(), pool, room(memory));
  }
  VulkanMatrix(const QuantizedMatrix& weights, WeightUse use, Memory& memory, ThreadPool* pool)
      : VulkanMatrix(weights.n, weights.k, weights.type, use, memory) {
    pack_weights(weights, layout(), pool, room(memory));
  }

  /// `panels` as of Matmul::adopt().
  VulkanMatrix(int64_t n, int64_t k, WeightType type, WeightUse use, std::span<const std::byte> panels, Memory& memory,
               ThreadPool* pool)
      : VulkanMatrix(n, k, type, use, memory) {
    repack_panels(panels, layout(), pool, room(memory));
  }

  ~VulkanMatrix() override { num_gone.fetch_add(1, std::memory_order_relaxed); }
  VulkanMatrix(const VulkanMatrix&) = delete;
  VulkanMatrix& operator=(const VulkanMatrix&) = delete;

  /// How many there were that are no more: whoever noted addresses must look again when it changes.
  static inline std::atomic<uint64_t> num_gone{0};

  PackedLayout layout() const { return {n(), k(), type(), is_gated()}; }
  int64_t packed_bytes() const override { return layout().bytes(); }
  uint64_t address() const { return address_of(storage_.address()); }

 private:
  VulkanMatrix(int64_t n, int64_t k, WeightType type, WeightUse use, Memory& memory) : PackedMatrix(n, k, type, use) {
    FERRY_CHECK_GE(n, 1);
    FERRY_CHECK_GE(k, 1);
    FERRY_CHECK(!is_gated() || n % 2 == 0);
    FERRY_CHECK(type.format != WeightFormat::kInt4 || k % type.group_size == 0);
    const MemoryUseScope weights(MemoryUse::kWeights);
    storage_ = memory.allocate(static_cast<std::size_t>(packed_bytes()));
  }
  /// On its way to the matrix.
  PackedRoom room(Memory& memory) {
    return [this, &memory](int64_t offset, int64_t size, const std::function<void(std::byte*)>& write) {
      static_cast<DeviceMemory&>(memory).fill(storage_.address() + offset, static_cast<std::size_t>(size), write);
    };
  }

  Storage storage_;
};

/// Whether every row of x begins and ends at a multiple of 16 bytes.
bool has_pieces(ConstMatrixView x) {
  const int64_t bytes = dtype_bytes(x.dtype);
  return address_of(x) % 16 == 0 && x.row_stride * bytes % 16 == 0 && x.cols * bytes % 16 == 0;
}

/// Groups that have rows: as many as there are, or, where the device alone knows, as are to be expected of rows that choose at
/// random, E (1 - e^(-rows / E)).
int64_t count_groups(const GroupedMatmulArgs& args) {
  if (!args.device_counts) return std::ranges::count_if(args.counts, [](int32_t count) { return count > 0; });
  const auto groups = static_cast<double>(args.weights.size()), rows = static_cast<double>(args.out.rows);
  return static_cast<int64_t>(std::ceil(groups * (1 - std::exp(-rows / groups))));
}

/// Of few rows a workgroup finds its tile by the run of its row, so that nobody has to list tiles before.
bool uses_runs(const GroupedMatmulArgs& args) { return args.device_counts && args.row_runs && args.out.rows <= kMostRunRows; }

class VulkanMatmul final : public Matmul {
 public:
  VulkanMatmul(Memory& memory, const DeviceTraits& traits) : memory_(memory), traits_(traits) {}

  const char* name() const override { return "vulkan"; }
  bool has_device_counts() const override { return true; }
  std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights, WeightUse use, ThreadPool* pool) override {
    return std::make_unique<VulkanMatrix>(weights, use, memory_, pool);
  }
  std::unique_ptr<PackedMatrix> pack(const QuantizedMatrix& weights, WeightUse use, ThreadPool* pool) override {
    return std::make_unique<VulkanMatrix>(weights, use, memory_, pool);
  }
  std::unique_ptr<PackedMatrix> adopt(int64_t n, int64_t k, WeightType type, WeightUse use, std::span<const std::byte> panels,
                                      ThreadPool* pool) override {
    return std::make_unique<VulkanMatrix>(n, k, type, use, panels, memory_, pool);
  }
  void grouped_matmul(Stream& stream, const GroupedMatmulArgs& args) override;

 private:
  /// The weights of a call's groups: where the device finds their addresses, and the first of those that have rows.
  struct Groups {
    const VulkanMatrix* first = nullptr;  // null: none has rows
    bool is_alone = false;                // no other has
    uint64_t addresses = 0;               // uint64_t [groups]; of one that is alone: its own
  };
  /// Weights whose addresses stay in the device's memory.
  struct Listed {
    std::vector<const PackedMatrix*> weights;
    uint64_t num_gone = 0;  // of VulkanMatrix when they were noted
    Array<uint64_t> addresses;
  };
  Groups take_groups(VulkanStream& stream, const GroupedMatmulArgs& args);
  Groups take_listed(const GroupedMatmulArgs& args);
  void cut_tiles(const GroupedMatmulArgs& args, int64_t tile_rows);
  uint64_t list_tiles(VulkanStream& stream, const GroupedMatmulArgs& args, int64_t tile_rows, int64_t& num_tiles);

  Memory& memory_;
  DeviceTraits traits_;
  // Of the call in progress; they keep their capacity.
  std::vector<uint64_t> weights_;  // of every group, 0 where it has no rows
  // Of layers' experts, whose counts the device knows: to check and send hundreds of them takes the host longer than all else
  // that it does for a product.
  std::unordered_map<const void*, Listed> listed_;
  std::vector<MatmulTile> tiles_;
  // Lists that the device makes, used in turn, so that the next product's is made while the last one's is read.
  std::array<Array<MatmulTile>, 4> lists_;
  std::size_t next_list_ = 0;
  Range last_list_;  // of the last call with counts of the device, cut into tiles of last_tile_rows_
  int64_t last_tile_rows_ = 0;
};

/// Of groups whose counts the device knows, all of which have weights.
VulkanMatmul::Groups VulkanMatmul::take_listed(const GroupedMatmulArgs& args) {
  const auto& first = static_cast<const VulkanMatrix&>(*args.weights[0]);
  check_operands(args, first);
  Listed& listed = listed_[args.weights.data()];
  const uint64_t num_gone = VulkanMatrix::num_gone.load(std::memory_order_relaxed);
  if (listed.num_gone == num_gone && std::ranges::equal(listed.weights, args.weights))
    return {&first, false, address_of(listed.addresses.data())};
  weights_.clear();
  for (const PackedMatrix* group : args.weights) {
    const auto& weights = static_cast<const VulkanMatrix&>(*group);
    FERRY_CHECK(weights.layout() == first.layout());
    weights_.push_back(weights.address());
  }
  listed.weights.assign(args.weights.begin(), args.weights.end());
  listed.num_gone = num_gone;
  listed.addresses = Array<uint64_t>(memory_, std::span<const uint64_t>(weights_));
  return {&first, false, address_of(listed.addresses.data())};
}

/// Checks the groups and notes their weights.
VulkanMatmul::Groups VulkanMatmul::take_groups(VulkanStream& stream, const GroupedMatmulArgs& args) {
  const bool is_counted = !args.device_counts;  // by the host
  FERRY_CHECK(!is_counted || args.counts.size() == args.weights.size());
  FERRY_CHECK(args.row_idx || args.rows.x.rows == args.out.rows);
  if (!is_counted) return take_listed(args);
  weights_.assign(args.weights.size(), 0);
  const VulkanMatrix* first = nullptr;
  int64_t num_rows = 0, num_groups = 0;
  for (std::size_t g = 0; g < args.weights.size(); ++g) {
    FERRY_CHECK_GE(args.counts[g], 0);
    if (args.counts[g] == 0) continue;
    const auto& weights = static_cast<const VulkanMatrix&>(*args.weights[g]);
    check_operands(args, weights);
    if (first == nullptr) first = &weights;
    FERRY_CHECK(weights.type() == first->type() && weights.is_gated() == first->is_gated());
    weights_[g] = weights.address();
    num_rows += args.counts[g];
    ++num_groups;
  }
  FERRY_CHECK_EQ(num_rows, args.out.rows);
  if (num_groups == 0) return {};
  if (num_groups == 1) return {first, true, first->address()};
  return {first, false, stream.upload(std::span<const uint64_t>(weights_))};
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

/// The list of tiles in device memory, `num_tiles` long, with entries without rows at its end where the device counts.
uint64_t VulkanMatmul::list_tiles(VulkanStream& stream, const GroupedMatmulArgs& args, int64_t tile_rows, int64_t& num_tiles) {
  if (!args.device_counts) {
    cut_tiles(args, tile_rows);
    num_tiles = std::ssize(tiles_);
    return stream.upload(std::span<const MatmulTile>(tiles_));
  }
  if (uses_runs(args)) {
    num_tiles = args.out.rows;
    stream.reads(args.row_runs, num_tiles);
    return address_of(args.row_runs);
  }
  const auto num_groups = std::ssize(args.weights);
  num_tiles = args.out.rows / tile_rows + std::min<int64_t>(num_groups, args.out.rows);
  if (args.are_counts_as_before && tile_rows == last_tile_rows_) {
    stream.reads(last_list_);
    return last_list_.begin;
  }
  Array<MatmulTile>& list = lists_[next_list_++ % lists_.size()];
  if (list.size() < num_tiles) {
    stream.wait(stream.submit());
    list = Array<MatmulTile>(memory_, 2 * num_tiles);
  }
  const Range written = Range::of(list.data().raw(), num_tiles);
  stream.reads(args.device_counts, num_groups);
  stream.writes(written);
  stream.dispatch({find_shader("matmul_tiles"), {traits_.subgroup_size}},
                  MatmulTilesPush{.counts = address_of(args.device_counts),
                                  .tiles = written.begin,
                                  .num_groups = static_cast<uint32_t>(num_groups),
                                  .tile_rows = static_cast<uint32_t>(tile_rows),
                                  .max_tiles = static_cast<uint32_t>(num_tiles)},
                  {});
  stream.reads(written);
  last_list_ = written;
  last_tile_rows_ = tile_rows;
  return written.begin;
}

void VulkanMatmul::grouped_matmul(Stream& any_stream, const GroupedMatmulArgs& args) {
  auto& stream = static_cast<VulkanStream&>(any_stream);
  const Groups groups = take_groups(stream, args);
  const VulkanMatrix* weights = groups.first;
  if (weights == nullptr || args.out.rows == 0) return;
  const ConstMatrixView& x = args.rows.x;
  const PackedLayout layout = weights->layout();
  const int64_t num_rows = args.out.rows;
  const int64_t num_groups = count_groups(args);
  const MatmulPlan plan = plan_product(traits_, {.type = weights->type(),
                                                 .dtype = args.out.dtype,
                                                 .is_gated = weights->is_gated(),
                                                 .has_pieces = has_pieces(x),
                                                 .k = weights->k(),
                                                 .num_panels = layout.num_panels(),
                                                 .num_rows = num_rows,
                                                 .num_groups = num_groups});
  int64_t num_tiles = (num_rows + plan.tile_rows - 1) / plan.tile_rows;
  const uint64_t tiles = groups.is_alone ? 0 : list_tiles(stream, args, plan.tile_rows, num_tiles);
  if (args.row_idx) stream.reads(args.row_idx, num_rows);
  const ProductFinish& finish = args.finish;
  stream.reads(x);
  if (args.rows.scales) stream.reads(args.rows.scales, x.rows);
  if (finish.bias) stream.reads(finish.bias, args.out.cols);
  if (finish.residual.data != nullptr) stream.reads(finish.residual);
  stream.writes(args.out);
  const MatmulPush push{.x = address_of(x),
                        .x_scales = address_of(args.rows.scales),
                        .row_idx = address_of(args.row_idx),
                        .tiles = tiles,
                        .weights = groups.addresses,
                        .result = address_of(args.out),
                        .bias = address_of(finish.bias),
                        .residual = address_of(finish.residual),
                        .x_stride = stride_of(x),
                        .result_stride = stride_of(args.out),
                        .residual_stride = stride_of(finish.residual),
                        .num_rows = static_cast<uint32_t>(num_rows),
                        .k = static_cast<uint32_t>(weights->k()),
                        .out_cols = static_cast<uint32_t>(args.out.cols),
                        .num_panels = static_cast<uint32_t>(layout.num_panels()),
                        .group_size = static_cast<uint32_t>(weights->type().group_size),
                        .activation = static_cast<uint32_t>(finish.activation),
                        .tiles_are_runs = uses_runs(args) ? 1U : 0U,
                        .fma_probe = kFmaProbe};
  const int64_t parts = (layout.num_panels() + plan.part_panels - 1) / plan.part_panels;
  const int64_t folds = (parts + kMaxGridParts - 1) / kMaxGridParts;
  stream.dispatch(
      {find_shader(plan.shader, args.out.dtype), plan.constants}, push,
      {static_cast<uint32_t>(num_tiles), static_cast<uint32_t>((parts + folds - 1) / folds), static_cast<uint32_t>(folds)});
}

}  // namespace

std::unique_ptr<Matmul> make_vulkan_matmul(Memory& memory, const DeviceTraits& traits, DType) {
  return std::make_unique<VulkanMatmul>(memory, traits);
}

}  // namespace ferry::vulkan
