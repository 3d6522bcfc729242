#include "kernels/matmul.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/argmax_screen.h"
#include "kernels/cpu/matmul_block.h"
#include "kernels/cpu/pack_panels.h"
#include "kernels/cpu/stream_distance.h"
#include "kernels/cpu/weight_arena.h"
#include "kernels/cpu_features.h"
#include "profiler/span.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kTasksPerThread = 4;       // so that a slow thread leaves work to the others
constexpr int64_t kMostTasksPerThread = 16;  // of few rows and many threads: cores do not read at one speed
constexpr int64_t kLightRows = 4;            // up to these: their copies, one a task, are small beside a panel
constexpr int64_t kSmallestTaskRows = 32;
constexpr int64_t kTurnRows = 72;    // up to these, panels need not stay in a cache: see panel_passes.h
constexpr int64_t kTurnPanels = 16;  // and so many hide the wait for the first one
// A block copies its rows into tiles, and tiles that come from the second level of the cache take most of the time; with so
// many rows neither their copies nor panels leave it, and a copy serves more panels.
constexpr int64_t kAmxBlockRows = 128;
constexpr int64_t kDefaultCacheBytes = int64_t{1} << 20;

/// Weights in panels, its own or borrowed ones.
class PanelMatrix final : public PackedMatrix {
 public:
  PanelMatrix(ConstMatrixView weights, WeightUse use, WeightArena& arena, ThreadPool* pool)
      : PackedMatrix(weights.rows, weights.cols, plain_weights(weights.dtype), use),
        owned_(allocate(arena)),
        panels_(owned_.get()) {
    pack_panels(weights, columns(), owned_.get(), pool);
  }
  PanelMatrix(const QuantizedMatrix& weights, WeightUse use, WeightArena& arena, ThreadPool* pool)
      : PackedMatrix(weights.n, weights.k, weights.type, use), owned_(allocate(arena)), panels_(owned_.get()) {
    pack_panels(weights, columns(), owned_.get(), pool);
  }
  PanelMatrix(int64_t n, int64_t k, WeightType type, WeightUse use, std::span<const std::byte> panels)
      : PackedMatrix(n, k, type, use), panels_(panels.data()) {
    check_shape();
    FERRY_CHECK_EQ(static_cast<int64_t>(panels.size()), packed_bytes());
    FERRY_CHECK_EQ(reinterpret_cast<uintptr_t>(panels_) % kLineBytes, 0U);
  }

  PanelColumns columns() const { return {n(), is_gated()}; }
  int64_t panel_stride() const { return panel_bytes(type(), k()); }
  int64_t packed_bytes() const override { return columns().num_panels() * panel_stride(); }
  const std::byte* panel(int64_t panel_idx) const { return panels_ + panel_idx * panel_stride(); }

 private:
  void check_shape() const {
    FERRY_CHECK_GE(n(), 1);
    FERRY_CHECK_GE(k(), 1);
    FERRY_CHECK(!is_gated() || n() % 2 == 0);
    FERRY_CHECK(type().format != WeightFormat::kInt4 || k() % type().group_size == 0);
  }
  std::shared_ptr<std::byte> allocate(WeightArena& arena) const {
    check_shape();
    return arena.allocate(static_cast<std::size_t>(packed_bytes()));
  }

  std::shared_ptr<std::byte> owned_;  // null where the panels are borrowed
  const std::byte* panels_;
};

/// How a call is cut into tasks: neighbouring panels of one group, and all or some of its rows. No result depends on it.
struct Cut {
  int64_t panels;  // of a task
  int64_t rows;    // likewise, at most
};

/// The more threads, the more of them wait for the slowest one's last task.
int64_t tasks_per_thread(int64_t num_rows, int num_threads) {
  const int64_t most = std::clamp<int64_t>(num_threads, kTasksPerThread, kMostTasksPerThread);
  return std::clamp(most * kLightRows / std::max<int64_t>(num_rows, 1), kTasksPerThread, most);
}

/// Panels so that they stay in a core's second-level cache while all rows pass, or up to `block_rows` of them take turns at
/// each; fewer where there would be too few tasks.
Cut choose_cut(const GroupedMatmulArgs& args, const PanelMatrix& shape, int num_threads, int64_t cache_bytes,
               int64_t block_rows) {
  int64_t num_groups = 0, most_rows = 0;
  for (const int32_t count : args.counts) {
    num_groups += count > 0 ? 1 : 0;
    most_rows = std::max<int64_t>(most_rows, count);
  }
  const int64_t wanted_tasks = tasks_per_thread(most_rows, num_threads) * num_threads,
                num_panels = shape.columns().num_panels();
  if (block_rows > 0 && most_rows > kTurnRows) {
    const int64_t row_parts = (most_rows + block_rows - 1) / block_rows;
    return {std::clamp<int64_t>(num_groups * num_panels * row_parts / wanted_tasks, 1, kTurnPanels), block_rows};
  }
  const int64_t fitting = std::max<int64_t>(most_rows <= kTurnRows ? kTurnPanels : 1, cache_bytes / 2 / shape.panel_stride());
  const int64_t panels = std::clamp<int64_t>(num_groups * num_panels / wanted_tasks, 1, fitting);
  const int64_t num_tasks = num_groups * ((num_panels + panels - 1) / panels);
  const int64_t row_parts = (wanted_tasks + num_tasks - 1) / num_tasks;
  const int64_t rows = num_threads == 1 ? most_rows : std::max(kSmallestTaskRows, (most_rows + row_parts - 1) / row_parts);
  return {panels, rows};
}

class CpuMatmul final : public Matmul {
 public:
  explicit CpuMatmul(const MatmulKernels& kernels) : kernels_(kernels) {
    const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (bytes > 0) cache_bytes_ = bytes;
  }

  const char* name() const override { return kernels_.name; }
  std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights, WeightUse use, ThreadPool* pool) override {
    return std::make_unique<PanelMatrix>(weights, use, arena_, pool);
  }
  std::unique_ptr<PackedMatrix> pack(const QuantizedMatrix& weights, WeightUse use, ThreadPool* pool) override {
    return std::make_unique<PanelMatrix>(weights, use, arena_, pool);
  }
  std::unique_ptr<PackedMatrix> adopt(int64_t n, int64_t k, WeightType type, WeightUse use, std::span<const std::byte> panels,
                                      ThreadPool*) override {
    return std::make_unique<PanelMatrix>(n, k, type, use, panels);
  }
  bool borrows_panels() const override { return true; }
  const MatmulKernels& kernels() const { return kernels_; }
  void grouped_matmul(Stream& stream, const GroupedMatmulArgs& args) override;
  void matmuls(Stream& stream, std::span<const NamedProduct> products) override;

 private:
  void begin_call(const ThreadPool& pool);
  void add_blocks(const GroupedMatmulArgs& args, int64_t first_row, int64_t num_rows, const PanelMatrix& weights, Cut cut);
  void add_even_tasks(std::span<const NamedProduct> products, int64_t total_bytes, int64_t num_tasks);
  void multiply(const MatmulBlock& block) const;

  MatmulKernels kernels_;
  WeightArena arena_;
  int64_t cache_bytes_ = kDefaultCacheBytes;
  // Of the call in progress; they keep their capacity.
  std::vector<MatmulBlock> blocks_;
  std::vector<int64_t> task_ends_;  // behind each task's last block, where tasks have several
};

/// Rows [row, row + num_rows) of a call times panels [panel, panel + num_panels) of one matrix.
MatmulBlock make_block(const GroupedMatmulArgs& args, int64_t row, int64_t num_rows, const PanelMatrix& weights, int64_t panel,
                       int64_t num_panels) {
  const int64_t panel_cols = weights.is_gated() ? kHalfCols : kPanelCols, first_col = panel * panel_cols;
  const ConstMatrixView& x = args.rows.x;
  return {.x = x.row_address(row),
          .x_dtype = x.dtype,
          .x_stride = x.row_stride * dtype_bytes(x.dtype),
          .x_scales = args.rows.scales.raw() == nullptr ? nullptr : args.rows.scales.raw() + row,
          .panels = weights.panel(panel),
          .num_panels = num_panels,
          .type = weights.type(),
          .stream_distance = stream_distance(weights.type()),
          .k = weights.k(),
          .out = args.out.row_address(row) + first_col * dtype_bytes(args.out.dtype),
          .out_stride = args.out.row_stride,
          .num_rows = num_rows,
          .num_cols = std::min(num_panels * panel_cols, weights.out_cols() - first_col),
          .out_dtype = args.out.dtype,
          .is_gated = weights.is_gated(),
          .finish = args.finish.bias.raw() == nullptr ? nullptr : &args.finish,
          .first_row = row,
          .first_col = first_col};
}

/// Room for the tasks of few rows is made in the first call, whichever that is, so that a step of decode need not.
void CpuMatmul::begin_call(const ThreadPool& pool) {
  constexpr std::size_t kSpareTasks = 1024;  // tasks of kTurnPanels are more where threads are few: of 524,288 columns here
  const std::size_t most_tasks = static_cast<std::size_t>(kMostTasksPerThread * pool.num_threads()) + kSpareTasks;
  blocks_.clear();
  task_ends_.clear();
  blocks_.reserve(most_tasks);
  task_ends_.reserve(most_tasks);
}

/// Appends the blocks of one group: all rows for the first panels, then all rows for the next, so that weights are read once.
void CpuMatmul::add_blocks(const GroupedMatmulArgs& args, int64_t first_row, int64_t num_rows, const PanelMatrix& weights,
                           Cut cut) {
  const int64_t num_panels = weights.columns().num_panels();
  const int64_t row_parts = (num_rows + cut.rows - 1) / cut.rows;
  for (int64_t panel = 0; panel < num_panels; panel += cut.panels) {
    const int64_t panels = std::min(cut.panels, num_panels - panel);
    for (int64_t part = 0; part < row_parts; ++part) {
      const int64_t row = first_row + num_rows * part / row_parts, end = first_row + num_rows * (part + 1) / row_parts;
      blocks_.push_back(make_block(args, row, end - row, weights, panel, panels));
    }
  }
}

void CpuMatmul::multiply(const MatmulBlock& block) const { kernels_.of(block.type.format, block.x_dtype)(block); }

void CpuMatmul::grouped_matmul(Stream& stream, const GroupedMatmulArgs& args) {
  ThreadPool& pool = stream.pool();
  FERRY_CHECK_EQ(args.counts.size(), args.weights.size());
  FERRY_CHECK_EQ(args.rows.x.rows, args.out.rows);
  begin_call(pool);
  Cut cut{};
  int64_t row = 0;
  for (std::size_t g = 0; g < args.counts.size(); ++g) {
    const int64_t num_rows = args.counts[g];
    FERRY_CHECK_GE(num_rows, 0);
    if (num_rows == 0) continue;
    const auto& weights = static_cast<const PanelMatrix&>(*args.weights[g]);
    check_operands(args, weights);
    FERRY_CHECK_LE(row + num_rows, args.rows.x.rows);
    if (blocks_.empty()) cut = choose_cut(args, weights, pool.num_threads(), cache_bytes_, kernels_.most_rows);
    add_blocks(args, row, num_rows, weights, cut);
    row += num_rows;
  }
  FERRY_CHECK_EQ(row, args.rows.x.rows);
  pool.parallel_for(std::ssize(blocks_),
                    [&](int64_t block_idx, int) { multiply(blocks_[static_cast<std::size_t>(block_idx)]); });
}

/// Bytes that a product reads of its weights.
int64_t weight_bytes(const NamedProduct& product) { return product.weights->packed_bytes(); }

/// Whether the spans of these products would be recorded.
bool are_traced(std::span<const NamedProduct> products) {
  return detail::trace_buffer != nullptr && is_traced(products.front().zone);
}

/// Notes spans that share the time from `begin` to `end` (ticks).
void record_shares(std::span<const NamedProduct> products, int64_t total_bytes, uint64_t begin, uint64_t end) {
  const auto length = static_cast<double>(end - begin), total = static_cast<double>(total_bytes);
  int64_t bytes = 0;
  const auto moment = [&] { return begin + static_cast<uint64_t>(length * static_cast<double>(bytes) / total); };
  for (const NamedProduct& product : products) {
    const uint64_t from = moment();
    bytes += weight_bytes(product);
    record_span(product.zone, from, moment(), static_cast<uint32_t>(product.out.rows));
  }
}

/// Appends the blocks of tasks with as many bytes of weights each, as nearly as whole panels allow: panels of all products in a
/// row, cut without regard to where one product ends.
void CpuMatmul::add_even_tasks(std::span<const NamedProduct> products, int64_t total_bytes, int64_t num_tasks) {
  const int64_t num_rows = products.front().rows.x.rows;
  int64_t bytes = 0;  // up to `panel`
  for (const NamedProduct& product : products) {
    const auto& weights = static_cast<const PanelMatrix&>(*product.weights);
    const GroupedMatmulArgs args{.rows = product.rows, .out = product.out};
    check_operands(args, weights);
    FERRY_CHECK(product.rows.x.rows == num_rows && product.out.rows == num_rows);
    const int64_t num_panels = weights.columns().num_panels(), stride = weights.panel_stride();
    for (int64_t panel = 0, end = 0; panel < num_panels; panel = end) {
      const int64_t task = std::ssize(task_ends_);
      const int64_t task_end = total_bytes * (task + 1) / num_tasks;  // bytes
      const int64_t wanted = std::max<int64_t>((task_end - bytes + stride / 2) / stride, 1);
      end = std::min(panel + wanted, num_panels);
      blocks_.push_back(make_block(args, 0, num_rows, weights, panel, end - panel));
      bytes += (end - panel) * stride;
      if (bytes + stride / 2 >= task_end) task_ends_.push_back(std::ssize(blocks_));
    }
  }
  if (task_ends_.empty() || task_ends_.back() != std::ssize(blocks_)) task_ends_.push_back(std::ssize(blocks_));
}

void CpuMatmul::matmuls(Stream& stream, std::span<const NamedProduct> products) {
  // Of more rows a product takes so long that nothing is lost between two of them, and cuts of its own use the caches better.
  if (products.size() < 2 || products.front().out.rows > kTurnRows) return Matmul::matmuls(stream, products);
  if (products.front().out.rows == 0) return;
  const bool is_recorded = are_traced(products);
  ChainPlace place;
  const uint64_t begin = is_recorded ? place.begin() : 0;
  int64_t total_bytes = 0, num_panels = 0;
  for (const NamedProduct& product : products) {
    total_bytes += weight_bytes(product);
    num_panels += static_cast<const PanelMatrix&>(*product.weights).columns().num_panels();
  }
  const int num_threads = stream.pool().num_threads();
  const int64_t wanted_tasks = tasks_per_thread(products.front().out.rows, num_threads) * num_threads;
  begin_call(stream.pool());
  add_even_tasks(products, total_bytes, std::max(wanted_tasks, num_panels / kTurnPanels));
  stream.pool().parallel_for(std::ssize(task_ends_), [&](int64_t task_idx, int) {
    const auto task = static_cast<std::size_t>(task_idx);
    for (int64_t b = task == 0 ? 0 : task_ends_[task - 1]; b < task_ends_[task]; ++b)
      multiply(blocks_[static_cast<std::size_t>(b)]);
  });
  if (is_recorded) record_shares(products, total_bytes, begin, place.end());
}

}  // namespace

std::vector<MatmulKernels> available_matmul_kernels() {
  const MatmulKernels avx2{"avx2",
                           cpu_avx2::multiply_f32,
                           cpu_avx2::multiply_bf16,
                           cpu_avx2::multiply_int8,
                           cpu_avx2::multiply_int4,
                           cpu_avx2::multiply_e4m3,
                           cpu_avx2::multiply_e4m3};
  MatmulKernels avx512 = avx2;
  avx512.name = "avx512";
  avx512.f32 = cpu_avx512::multiply_f32;
  avx512.bf16 = cpu_avx512::multiply_bf16;
  avx512.e4m3 = avx512.e4m3_f32 = cpu_avx512::multiply_e4m3;
  MatmulKernels vnni = avx512;
  vnni.name = "avx512_vnni";
  vnni.int8 = cpu_avx512_vnni::multiply_int8;
  vnni.int4 = cpu_avx512_vnni::multiply_int4;
  MatmulKernels bf16 = vnni;
  bf16.name = "avx512_bf16";
  bf16.bf16 = cpu_avx512_bf16::multiply_bf16;
  bf16.e4m3 = cpu_avx512_bf16::multiply_e4m3;
  const MatmulKernels amx{"amx",
                          cpu_avx512::multiply_f32,
                          cpu_amx::multiply_bf16,
                          cpu_amx::multiply_int8,
                          cpu_amx::multiply_int4,
                          cpu_amx::multiply_e4m3,
                          cpu_avx512::multiply_e4m3,
                          kAmxBlockRows};
  std::vector<MatmulKernels> found;
  if (has_amx()) found.push_back(amx);
  if (has_avx512_bf16() && has_avx512_vnni()) found.push_back(bf16);
  if (has_avx512_vnni()) found.push_back(vnni);
  if (has_avx512()) found.push_back(avx512);
  if (has_avx2()) found.push_back(avx2);
  return found;
}

bool has_argmax_screen(const Matmul& matmul) { return dynamic_cast<const CpuMatmul*>(&matmul) != nullptr; }

std::unique_ptr<ArgmaxScreen> make_argmax_screen(const Matmul& matmul, const PackedMatrix& weights, int64_t max_rows,
                                                 ThreadPool& pool) {
  const auto* own = dynamic_cast<const CpuMatmul*>(&matmul);
  if (own == nullptr || weights.type() != plain_weights(DType::kBF16) || weights.is_gated()) return nullptr;
  if (weights.k() > kMaxQuantizedK) return nullptr;
  const auto& panels = static_cast<const PanelMatrix&>(weights);
  return make_panel_argmax_screen(own->kernels(), {panels.panel(0), panels.n(), panels.k()}, max_rows, pool);
}

std::vector<std::string> cpu_matmul_names() {
  std::vector<std::string> names;
  for (const MatmulKernels& kernels : available_matmul_kernels()) names.emplace_back(kernels.name);
  return names;
}

std::unique_ptr<Matmul> make_cpu_matmul(const std::string& name) {
  std::string allowed;
  for (const MatmulKernels& kernels : available_matmul_kernels()) {
    if (name.empty() || name == kernels.name) return std::make_unique<CpuMatmul>(kernels);
    allowed += (allowed.empty() ? "" : ", ") + std::string(kernels.name);
  }
  throw_invalid("--matmul: '" + name + "' cannot run on this processor; allowed: " + (allowed.empty() ? "ref" : allowed));
}

}  // namespace ferry
