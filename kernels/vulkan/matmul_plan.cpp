#include "kernels/vulkan/matmul_plan.h"

#include <algorithm>
#include <optional>

#include "kernels/vulkan/pack_weights.h"

namespace ferry::vulkan {
namespace {

/// Rows of a group that a tile should hold: all of one group's; of several, whose sizes differ, half more than they have in the
/// mean, so that few need a second tile.
int64_t wanted_rows(const ProductShape& shape) {
  if (shape.num_groups <= 1) return shape.num_rows;
  return (3 * shape.num_rows + 2 * shape.num_groups - 1) / (2 * shape.num_groups);
}

/// The smallest of `sizes`, ascending, that holds `rows`, or the largest.
template <std::size_t kCount>
int64_t size_for(int64_t rows, const std::array<int64_t, kCount>& sizes) {
  const auto fitting = std::lower_bound(sizes.begin(), sizes.end(), rows);
  return fitting == sizes.end() ? sizes.back() : *fitting;
}

/// What all kernels begin with; their own constants follow.
MatmulPlan make_plan(const char* shader, const ProductShape& shape, uint32_t invocations, int64_t tile_rows,
                     int64_t part_panels, std::initializer_list<int64_t> constants) {
  MatmulPlan plan{.shader = shader, .tile_rows = tile_rows, .part_panels = part_panels};
  plan.constants = {invocations, shape.has_pieces ? 1U : 0U, shape.is_gated ? 1U : 0U};
  std::transform(constants.begin(), constants.end(), plan.constants.begin() + 3,
                 [](int64_t value) { return static_cast<uint32_t>(value); });
  return plan;
}

constexpr uint32_t kSlotsInvocations = 256;  // 16 columns x 16 slots
constexpr int64_t kStageBytes = 8192;        // that few rows fill
constexpr int64_t kManyPanels = 512;         // whose pairs are workgroups enough

MatmulPlan plan_slots(const ProductShape& shape) {
  const bool is_e4m3 = shape.type.format == WeightFormat::kE4M3;
  // A group of one row has nothing to share; of more, rows that are not there cost less than reading weights twice.
  const int64_t rows =
      shape.num_rows == shape.num_groups ? 1 : size_for(wanted_rows(shape), std::array<int64_t, 2>{4, is_e4m3 ? 8 : 16});
  // Of x in shared memory: a step of all slots is 128 elements of f32, 256 of bf16, 512 of e4m3, in 4 bytes each.
  const int64_t step_bytes = 16 * tile_k(shape.type.format) * 4;
  const int64_t steps = std::clamp<int64_t>(kStageBytes / (rows * step_bytes), 1, 8);
  return make_plan(is_e4m3 ? "slots_matmul_e4m3" : "slots_matmul", shape, kSlotsInvocations, rows, 2, {rows, steps});
}

constexpr int64_t kMostElements = 256;      // of rows x columns of dot_matmul.comp
constexpr int64_t kMostSlotTiles = 8;       // of weights in an invocation's registers
constexpr int64_t kMostSharedTiles = 2;     // likewise if several rows share them: more cost more subgroups than they gain
constexpr int64_t kDotSharedBytes = 16384;  // for what the parts of an element come to

MatmulPlan plan_dots(const ProductShape& shape) {
  const bool is_int4 = shape.type.format == WeightFormat::kInt4;
  const int64_t rows = shape.num_rows == shape.num_groups ? 1 : size_for(wanted_rows(shape), std::array<int64_t, 2>{4, 8});
  const int64_t num_tiles = (shape.k + tile_k(shape.type.format) - 1) / tile_k(shape.type.format);
  // A panel of int8 has the bytes of a pair of int4. Where workgroups are few, more of them read faster.
  const bool is_pair = shape.is_gated || is_int4 || shape.num_panels * shape.num_groups >= kManyPanels;
  const int64_t panels = is_pair ? 2 : 1;
  const bool is_short = num_tiles <= 8 && rows * panels * kPanelRows * 2 <= kMostElements;
  const int64_t slots = is_short ? 8 : 16;
  // As many tiles at once as k has and registers hold, and, of int4, sums of all parts have room in shared memory.
  const int64_t most_tiles = rows == 1 ? kMostSlotTiles : kMostSharedTiles;
  const int64_t tile_parts = is_int4 && shape.type.group_size < tile_k(shape.type.format) ? 2 : 1;
  const int64_t tile_bytes = 16 * tile_parts * rows * panels * kPanelRows * 4;
  int64_t slot_tiles = 1;
  while (slot_tiles * slots < num_tiles && 2 * slot_tiles * panels <= most_tiles &&
         (!is_int4 || 2 * slot_tiles * tile_bytes <= kDotSharedBytes)) {
    slot_tiles *= 2;
  }
  return make_plan(is_int4 ? "dot_matmul_int4" : "dot_matmul_int8", shape, kSlotsInvocations, rows, panels * 16 / slots,
                   {rows, panels, slot_tiles, shape.type.group_size, shape.type.is_wide ? 1 : 0, slots});
}

constexpr int64_t kSegmentTiles = 32;       // as in shaders/matmul_fragments.glsl
constexpr int64_t kPartPanels = 8;          // of a workgroup of the kernel for many rows
constexpr int64_t kMostStreamRows = 32;     // of a tile of stream_matmul.comp
constexpr int64_t kMostFewRows = 64;        // more are multiplied faster through shared memory
constexpr int64_t kFewWorkgroups = 64;      // leave most of a large device idle
constexpr int64_t kEnoughWorkgroups = 256;  // fill it
constexpr int64_t kMostPackedDotRows = 4;   // of int8; more are worth a fragment
constexpr int64_t kMostDotRows = 8;         // of int4, which must be unpacked for a fragment
constexpr uint32_t kMostInvocations = 256;  // of a workgroup

/// Whether the kernels can, and should, work with fragments that are cut from tiles of `tile` elements a row. Smaller ones are
/// those of processors that have no unit for matrices.
bool is_usable(Fragment f, uint32_t tile) {
  return f.m == kPanelRows && (f.n == 8 || f.n == kPanelRows) && f.k >= 16 && tile % f.k == 0;
}

/// The fragment for products of such weights; none where they are multiplied in plain arithmetic.
Fragment fragment_for(const DeviceTraits& traits, const ProductShape& shape) {
  if (traits.subgroup_size < 8 || traits.subgroup_size > kMostInvocations / 4) return {};
  const bool is_bf16 = shape.type.format == WeightFormat::kBF16;
  if (is_bf16) return is_usable(traits.bf16, 16) ? traits.bf16 : Fragment{};
  return shape.type.is_integer() && is_usable(traits.int8, 32) ? traits.int8 : Fragment{};
}

int64_t num_row_tiles(const ProductShape& shape, int64_t rows) {
  return std::max(shape.num_groups, (shape.num_rows + rows - 1) / rows);
}

/// How subgroups of stream_matmul.comp share a workgroup's work.
struct StreamSize {
  int64_t rows = 0, subgroups = 0, segment_slots = 1;
  int64_t panels = 1, chunk_tiles = 1;  // of a subgroup at once
  bool shares_rows = false;
};

/// Shared memory of stream_matmul.comp: x and sums.
int64_t stream_shared_bytes(Fragment f, const StreamSize& size) {
  const int64_t row_slots = size.shares_rows ? size.segment_slots : size.subgroups;
  return row_slots * size.rows * (2 * size.chunk_tiles + 1) * 16 + size.subgroups * int64_t{f.m} * f.n * 4;
}

/// Subgroups share rows of one group where there are more of them than segments: a group of several has few rows.
StreamSize stream_size(const DeviceTraits& traits, const ProductShape& shape, Fragment f) {
  StreamSize size{.rows = size_for(wanted_rows(shape), std::array<int64_t, 2>{16, 32}), .subgroups = 4};
  const int64_t num_tiles = (shape.k + tile_k(shape.type.format) - 1) / tile_k(shape.type.format);
  const int64_t segments = (num_tiles + kSegmentTiles - 1) / kSegmentTiles;
  const int64_t parts = shape.num_panels * num_row_tiles(shape, size.rows);  // if each is a workgroup's
  int64_t panel_slots = 1;
  if (size.rows == 32 && shape.num_groups <= 1) {
    // x takes longer than weights, so that as many subgroups share it as leave workgroups enough.
    panel_slots = std::clamp<int64_t>(parts / (2 * kFewWorkgroups), 1, 4);
    if (traits.subgroup_size <= 32 && panel_slots < 4) size.subgroups = 8;
  } else if (segments >= 8 && size.rows == 16 && parts < kEnoughWorkgroups && traits.subgroup_size <= 32) {
    size.subgroups = 8;
  }
  while (size.segment_slots < std::min(segments, size.subgroups / panel_slots)) size.segment_slots *= 2;
  size.shares_rows = shape.num_groups <= 1 && size.segment_slots < size.subgroups;
  const int64_t workgroups = parts * size.segment_slots / size.subgroups;
  const bool is_pair = shape.is_gated || (size.rows == 16 && workgroups >= 2 * kEnoughWorkgroups);
  size.panels = is_pair ? 2 : 1;
  // Of every panel 8 tiles of weights on their way to a subgroup, of a pair 4, as registers have room; but where workgroups
  // are many, of few rows, 8.
  const bool has_many = size.rows == 16 && workgroups >= 8 * kEnoughWorkgroups;
  size.chunk_tiles = (is_pair && !has_many) || (size.rows == 32 && !size.shares_rows) ? 4 : 8;
  while (size.chunk_tiles > 1 && stream_shared_bytes(f, size) > traits.shared_bytes) size.chunk_tiles /= 2;
  return size;
}

MatmulPlan plan_stream(const DeviceTraits& traits, const ProductShape& shape, Fragment f) {
  const StreamSize size = stream_size(traits, shape, f);
  const char* shader = shape.type.format == WeightFormat::kBF16 ? "stream_matmul" : "stream_matmul_int8";
  return make_plan(shader, shape, static_cast<uint32_t>(size.subgroups) * traits.subgroup_size, size.rows,
                   size.panels * size.subgroups / size.segment_slots,
                   {f.m, f.n, f.k, traits.subgroup_size, size.rows, size.segment_slots, size.panels, size.chunk_tiles,
                    size.shares_rows ? 1 : 0});
}

constexpr int64_t kMatrixDotRows = 16;  // of a tile of rows in dot_matrix_matmul.comp

/// Products of int4 by fragments, added group by group; none where shared memory has no room.
std::optional<MatmulPlan> plan_dot_matrices(const DeviceTraits& traits, const ProductShape& shape, Fragment f) {
  const int64_t subgroups = kMostInvocations / traits.subgroup_size, rows = kMatrixDotRows;
  const int64_t tile_parts = shape.type.group_size < tile_k(shape.type.format) ? 2 : 1;
  const int64_t panels = shape.is_gated ? 2 : 1, slot_tiles = panels * tile_parts > 1 ? 1 : 2;
  const int64_t staged = subgroups * (kPanelRows + rows) * 80;
  const int64_t dots = subgroups * slot_tiles * tile_parts * panels * (rows * (kPanelRows + 4) + kPanelRows) * 4;
  if (staged + dots > traits.shared_bytes) return std::nullopt;
  return make_plan(
      "dot_matrix_int4", shape, kMostInvocations, rows, panels,
      {f.m, f.n, f.k, traits.subgroup_size, rows, panels, slot_tiles, shape.type.is_wide ? 1 : 0, shape.type.group_size});
}

/// What a workgroup of tile_matmul.comp takes.
struct TileSize {
  int64_t panels = 0, rows = 0;
  int64_t subgroups = 0, panel_slots = 0;  // subgroups that share the panels
};
constexpr int64_t kTilePieces = 4;   // of 16 bytes: what is multiplied at once of a row in shared memory
constexpr int64_t kBlockTiles = 16;  // of rows of one group, which go through its panels together

int64_t num_tile_workgroups(const ProductShape& shape, const TileSize& size) {
  return num_row_tiles(shape, size.rows) * ((shape.num_panels + size.panels - 1) / size.panels);
}

/// Shared memory: a step of weights and rows or, at the end, a fragment of rows of results of each subgroup; scales of int4.
int64_t tile_shared_bytes(const ProductShape& shape, const TileSize& size, Fragment f) {
  const int64_t columns = size.panels * kPanelRows;
  const int64_t scales = shape.type.format == WeightFormat::kInt4 ? 2 * columns * 4 : 0;
  const int64_t results = size.subgroups / size.panel_slots * columns * f.n * 5;
  return scales + std::max((columns + size.rows) * (kTilePieces + 1) * 16, results);
}

/// A subgroup takes up to 64 columns x 64 rows, whose sums fill its registers; half of that of int4, whose groups end often.
TileSize tile_size(const DeviceTraits& traits, const ProductShape& shape, Fragment f) {
  const int64_t subgroups = traits.subgroup_size >= 32 ? 4 : 8, invocations = subgroups * traits.subgroup_size;
  const bool is_int4 = shape.type.format == WeightFormat::kInt4;
  // Workgroups of 96 rows are faster where groups differ in size (an H100: 6 to 10 %, of bf16), and of int4.
  const bool is_small = is_int4 || (shape.num_groups > 1 && shape.type.format == WeightFormat::kBF16);
  TileSize size{.panels = is_int4 && invocations <= 128 ? subgroups : kPartPanels,
                .rows = size_for(wanted_rows(shape), std::array<int64_t, 3>{64, 96, is_small ? 96 : 128}),
                .subgroups = subgroups,
                .panel_slots = subgroups / 2};
  if (size.rows * kTilePieces % invocations != 0) size.rows = 128;  // every invocation loads as much
  if (num_tile_workgroups(shape, size) < kEnoughWorkgroups || tile_shared_bytes(shape, size, f) > traits.shared_bytes)
    size.rows = 64;
  if (num_tile_workgroups(shape, size) < kEnoughWorkgroups && !is_int4) size.panels = subgroups;
  return size;
}

MatmulPlan plan_tile(const DeviceTraits& traits, const ProductShape& shape, Fragment f) {
  const TileSize size = tile_size(traits, shape, f);
  const bool is_int4 = shape.type.format == WeightFormat::kInt4;
  const bool has_segments = shape.k > kSegmentTiles * tile_k(WeightFormat::kBF16);
  const char* shader = is_int4                                    ? "tile_matmul_int4"
                       : shape.type.format == WeightFormat::kBF16 ? "tile_matmul"
                                                                  : "tile_matmul_int8";
  return make_plan(shader, shape, static_cast<uint32_t>(size.subgroups) * traits.subgroup_size, size.rows, size.panels,
                   {f.m, f.n, f.k, traits.subgroup_size, size.rows, size.panels, size.panel_slots,
                    (is_int4 ? shape.type.is_wide : has_segments) ? 1 : 0, shape.num_groups <= 1 ? kBlockTiles : 1});
}

/// Of int4: packed dot products of few rows; then, where workgroups are few, fragments whose sums many subgroups add up.
MatmulPlan plan_int4(const DeviceTraits& traits, const ProductShape& shape, Fragment fragment) {
  const int64_t rows = wanted_rows(shape);
  const bool has_few_panels = num_tile_workgroups(shape, {.panels = 4, .rows = 64}) < kFewWorkgroups;
  if (!fragment || rows <= kMostDotRows || (rows <= 2 * kMostDotRows && !has_few_panels)) return plan_dots(shape);
  const bool is_few = rows <= kMostFewRows && has_few_panels;
  const std::optional<MatmulPlan> plan = is_few ? plan_dot_matrices(traits, shape, fragment) : std::nullopt;
  return plan ? *plan : plan_tile(traits, shape, fragment);
}

}  // namespace

bool has_matrices(const DeviceTraits& traits, WeightType type) {
  return static_cast<bool>(fragment_for(traits, {.type = type}));
}

MatmulPlan plan_product(const DeviceTraits& traits, const ProductShape& shape) {
  const Fragment fragment = fragment_for(traits, shape);
  const int64_t rows = wanted_rows(shape);
  if (shape.type.format == WeightFormat::kInt4) return plan_int4(traits, shape, fragment);
  if (shape.type.format == WeightFormat::kInt8 && (!fragment || rows <= kMostPackedDotRows)) return plan_dots(shape);
  if (!fragment) return plan_slots(shape);
  // Tiles of 64 rows read x less often than those of 32, if there are workgroups enough. (An H100, 64 rows by 12352 columns, 97
  // of these workgroups: int8 a sixth faster by them, bf16 an eighth slower.)
  const bool needs_many = shape.type.format == WeightFormat::kBF16 && shape.num_groups <= 1 && rows <= kMostFewRows;
  const int64_t tiles = num_tile_workgroups(shape, {.panels = kPartPanels, .rows = 64});
  const bool is_few = rows <= kMostStreamRows || tiles < (needs_many ? kEnoughWorkgroups : kFewWorkgroups);
  return is_few ? plan_stream(traits, shape, fragment) : plan_tile(traits, shape, fragment);
}

}  // namespace ferry::vulkan
