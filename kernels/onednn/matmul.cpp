#include "kernels/matmul.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/error.h"

// A weight matrix is cut into slabs of columns that stay in a core's L2 cache while all rows pass; a task is one slab and some
// rows of one group. oneDNN runs single-threaded inside a task.
//
// Batch invariance. oneDNN picks an implementation and a blocking of k for every (rows, n, k), so 16 rows may be summed in
// another order than 64 (seen with AMX tiles: single rows fall back to AVX-512). Therefore rows only ever pass in blocks of
// a few sizes, and a size is used for a slab shape only after a probe showed that it gives the same bits as the largest one.

namespace ferry {
namespace {

constexpr int64_t kMaxBlockRows = 64;
constexpr std::array<int64_t, 8> kBlockRows = {64, 48, 32, 16, 8, 4, 2, 1};  // candidates, largest first
constexpr int64_t kSlabBytes = 512 * 1024;                                   // half of a 1 MiB L2, the rest is for the rows
constexpr int64_t kSlabColumnAlign = 64;                                     // two AMX tile pairs, four AVX-512 registers
constexpr int64_t kMaxSlabColumns = 256;
constexpr int64_t kMaxTaskRows = 256;  // rows a task passes through its slab

using dnnl::memory;

memory::data_type dnnl_type(DType dtype) { return dtype == DType::kF32 ? memory::data_type::f32 : memory::data_type::bf16; }

/// The k that oneDNN sees: bf16 products take k in pairs, and an odd one may end in an illegal instruction (oneDNN 2.6.3 with
/// AMX tiles: k = 63 with 80 columns). A zero in both operands adds nothing.
int64_t even_k(int64_t k, DType dtype) { return dtype == DType::kBF16 ? k + k % 2 : k; }

/// The rows of `weights` with zeros behind, up to `k` columns.
Matrix widened(ConstMatrixView weights, int64_t k) {
  Matrix wide(weights.dtype, weights.rows, k);
  const auto row_bytes = static_cast<std::size_t>(weights.cols * dtype_bytes(weights.dtype));
  for (int64_t r = 0; r < weights.rows; ++r) std::memcpy(wide.view().row_bytes(r), weights.row_bytes(r), row_bytes);
  return wide;
}

/// Columns of a slab; a function of the shape alone, so that every rank and every thread count cuts alike.
int64_t slab_columns(int64_t k, DType dtype) {
  const int64_t fitting = kSlabBytes / (k * dtype_bytes(dtype)) / kSlabColumnAlign * kSlabColumnAlign;
  return std::clamp(fitting, kSlabColumnAlign, kMaxSlabColumns);
}

/// The verified primitives for one slab shape.
struct SlabKernels {
  struct Block {
    int64_t rows;
    dnnl::matmul primitive;
    memory::desc src, dst, scratchpad;
  };
  memory::desc weights;       // the packed layout, the same for all blocks
  std::vector<Block> blocks;  // largest first

  /// The block to run next when `rows` rows are left: the largest that fits, unless padding up wastes less than a third.
  const Block& choose(int64_t rows) const {
    const Block* padded = nullptr;
    for (const Block& block : blocks) {
      if (block.rows >= rows) padded = &block;
      if (block.rows <= rows) return padded != nullptr && 2 * padded->rows <= 3 * rows ? *padded : block;
    }
    return *padded;
  }
};

struct Slab {
  int64_t first_column;
  int64_t columns;
  std::size_t offset;  // bytes into the matrix's buffer
  const SlabKernels* kernels;
};

class OnednnMatrix final : public PackedMatrix {
 public:
  OnednnMatrix(int64_t n, int64_t k, DType dtype, WeightUse use, std::vector<Slab> slabs, AlignedBuffer buffer)
      : PackedMatrix(n, k, plain_weights(dtype), use), slabs_(std::move(slabs)), buffer_(std::move(buffer)) {}
  int64_t packed_bytes() const override { return static_cast<int64_t>(buffer_.size()); }
  const std::vector<Slab>& slabs() const { return slabs_; }
  std::byte* slab_data(const Slab& slab) const { return const_cast<std::byte*>(buffer_.data()) + slab.offset; }

 private:
  std::vector<Slab> slabs_;
  AlignedBuffer buffer_;
};

/// What one thread needs to run slabs: a stream and buffers that only grow.
struct ThreadScratch {
  explicit ThreadScratch(const dnnl::engine& engine) : stream(engine) {}

  static std::byte* ensure(AlignedBuffer& buffer, int64_t bytes) {
    if (buffer.size() < static_cast<std::size_t>(bytes)) buffer = AlignedBuffer(static_cast<std::size_t>(bytes));
    return buffer.data();
  }
  dnnl::stream stream;
  AlignedBuffer src, dst, scratchpad;
};

struct Task {
  const OnednnMatrix* weights;
  const Slab* slab;
  int64_t first_row;
  int64_t num_rows;
};

class OnednnMatmul final : public Matmul {
 public:
  explicit OnednnMatmul(DType dtype) : dtype_(dtype), engine_(dnnl::engine::kind::cpu, 0) {}

  const char* name() const override { return "onednn"; }
  std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights, WeightUse use, ThreadPool*) override;
  std::unique_ptr<PackedMatrix> pack(const QuantizedMatrix&, WeightUse, ThreadPool*) override {
    throw_invalid(
        "--matmul: onednn multiplies no quantised weights; allowed with --quantize and folders of `ferry quantize`: auto, own "
        "kernels, ref");
  }
  void grouped_matmul(Stream& stream, const GroupedMatmulArgs& args) override;

  /// True when oneDNN multiplies this dtype on this processor.
  bool is_supported();

 private:
  const SlabKernels& kernels_for(int64_t columns, int64_t k);
  std::unique_ptr<SlabKernels> build_kernels(int64_t columns, int64_t k);
  SlabKernels::Block make_block(int64_t rows, int64_t columns, int64_t k, memory::desc& weights);
  void run_block(ThreadScratch& scratch, const SlabKernels::Block& block, const memory::desc& weights_desc, void* src,
                 void* weights, void* dst);
  void multiply_groups(ThreadPool& pool, const GroupedMatmulArgs& args, MatrixView out);
  MatrixView inner_rows(int64_t rows, int64_t cols);
  void multiply_and_finish(Stream& stream, const GroupedMatmulArgs& args);
  void run_task(ThreadScratch& scratch, const Task& task, ConstMatrixView x, MatrixView out);
  std::vector<std::byte> probe(const SlabKernels::Block& block, const memory::desc& weights_desc, void* weights,
                               ConstMatrixView row, int64_t columns);
  void pack_slab(ConstMatrixView weights, const memory::desc& packed, std::byte* to_data);

  const DType dtype_;
  dnnl::engine engine_;
  std::mutex mutex_;                                                             // guards kernels_
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<SlabKernels>> kernels_;  // (columns, k)
  std::vector<std::unique_ptr<ThreadScratch>> scratch_;                          // per thread of the pool
  std::vector<Task> tasks_;                                                      // of the current call
  Matrix inner_;  // of the current call: gates and ups, or what waits for a bias; grows to the largest
};

/// oneDNN takes its thread count from OpenMP when a primitive is made and when it runs; ours run inside our own threads.
/// (Declared here because clang has no omp.h of g++'s OpenMP, which Debian's oneDNN runs on.)
extern "C" void omp_set_num_threads(int num_threads);
void use_one_onednn_thread() {
  thread_local bool done = false;
  if (!done) omp_set_num_threads(1);
  done = true;
}

SlabKernels::Block OnednnMatmul::make_block(int64_t rows, int64_t columns, int64_t k, memory::desc& weights) {
  const memory::data_type type = dnnl_type(dtype_);
  memory::desc src({rows, k}, type, memory::format_tag::ab);
  memory::desc dst({rows, columns}, type, memory::format_tag::ab);
  const memory::desc any({k, columns}, type, memory::format_tag::any);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);  // so that threads may run one primitive at once
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc pd(engine_, src, any, dst, attr);
#else
  const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(src, any, dst), attr, engine_);
#endif
  weights = pd.weights_desc();
  return {rows, dnnl::matmul(pd), src, dst, pd.scratchpad_desc()};
}

void OnednnMatmul::run_block(ThreadScratch& scratch, const SlabKernels::Block& block, const memory::desc& weights_desc,
                             void* src, void* weights, void* dst) {
  std::byte* pad = ThreadScratch::ensure(scratch.scratchpad, static_cast<int64_t>(block.scratchpad.get_size()) + 64);
  block.primitive.execute(scratch.stream, {{DNNL_ARG_SRC, memory(block.src, engine_, src)},
                                           {DNNL_ARG_WEIGHTS, memory(weights_desc, engine_, weights)},
                                           {DNNL_ARG_DST, memory(block.dst, engine_, dst)},
                                           {DNNL_ARG_SCRATCHPAD, memory(block.scratchpad, engine_, pad)}});
  scratch.stream.wait();
}

/// Operands whose exact products are all zero because their terms cancel in random pairs: what a product returns for them is
/// nothing but rounding residue, so another order of summation shows in almost every output, also through bf16.
struct ProbeOperands {
  Matrix row;      // [1, k]
  Matrix weights;  // [columns, k]
};

ProbeOperands make_probe_operands(DType dtype, int64_t columns, int64_t k) {
  std::mt19937 random(static_cast<uint32_t>(columns * 65537 + k));
  std::normal_distribution<float> normal;
  std::vector<int64_t> order(static_cast<std::size_t>(k));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::shuffle(order.begin(), order.end(), random);
  ProbeOperands probe{Matrix(dtype, 1, k), Matrix(dtype, columns, k)};
  visit_dtype(dtype, [&]<class T>() {
    T* row = probe.row.view().row<T>(0);
    for (std::size_t pair = 0; pair + 1 < order.size(); pair += 2) {
      const int64_t first = order[pair], second = order[pair + 1];
      const float value = round_to<T>(normal(random));
      row[first] = from_float<T>(value);
      row[second] = from_float<T>(-value);
      for (int64_t c = 0; c < columns; ++c) {
        T* weights = probe.weights.view().row<T>(c);
        weights[first] = weights[second] = from_float<T>(normal(random));
      }
    }
  });
  return probe;
}

/// Runs the block on copies of one row; returns the output row, or nothing if the rows' results differ.
std::vector<std::byte> OnednnMatmul::probe(const SlabKernels::Block& block, const memory::desc& weights_desc, void* weights,
                                           ConstMatrixView row, int64_t columns) {
  const int64_t k = row.cols;
  Matrix src(dtype_, block.rows, k);
  Matrix dst(dtype_, block.rows, columns);
  const auto row_bytes = static_cast<std::size_t>(k * dtype_bytes(dtype_));
  for (int64_t r = 0; r < block.rows; ++r) std::memcpy(src.view().row_bytes(r), row.data, row_bytes);
  ThreadScratch scratch(engine_);
  run_block(scratch, block, weights_desc, src.view().data, weights, dst.view().data);
  const auto out_bytes = static_cast<std::size_t>(columns * dtype_bytes(dtype_));
  for (int64_t r = 1; r < block.rows; ++r) {
    if (std::memcmp(dst.view().row_bytes(0), dst.view().row_bytes(r), out_bytes) != 0) return {};
  }
  return {dst.view().row_bytes(0), dst.view().row_bytes(0) + out_bytes};
}

void OnednnMatmul::pack_slab(ConstMatrixView weights, const memory::desc& packed, std::byte* to_data) {
  const memory::desc rows({weights.cols, weights.rows}, dnnl_type(dtype_), memory::dims{1, weights.row_stride});
  memory from(rows, engine_, const_cast<std::byte*>(weights.data));
  memory to(packed, engine_, to_data);
  dnnl::stream stream(engine_);
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
}

std::unique_ptr<SlabKernels> OnednnMatmul::build_kernels(int64_t columns, int64_t k) {
  auto kernels = std::make_unique<SlabKernels>();
  const ProbeOperands operands = make_probe_operands(dtype_, columns, k);
  std::vector<std::byte> expected;
  AlignedBuffer weights;
  for (const int64_t rows : kBlockRows) {
    memory::desc weights_desc;
    SlabKernels::Block block = make_block(rows, columns, k, weights_desc);
    if (kernels->blocks.empty()) {
      kernels->weights = weights_desc;
      weights = AlignedBuffer(weights_desc.get_size());
      pack_slab(operands.weights.view(), weights_desc, weights.data());
    } else if (!(weights_desc == kernels->weights)) {
      continue;
    }
    std::vector<std::byte> result = probe(block, kernels->weights, weights.data(), operands.row.view(), columns);
    if (result.empty() || (!expected.empty() && result != expected)) continue;
    expected = std::move(result);
    kernels->blocks.push_back(std::move(block));
  }
  FERRY_CHECK(!kernels->blocks.empty()) << "no row-invariant oneDNN product for n=" << columns << " k=" << k;
  return kernels;
}

const SlabKernels& OnednnMatmul::kernels_for(int64_t columns, int64_t k) {
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<SlabKernels>& kernels = kernels_[{columns, k}];
  if (kernels == nullptr) kernels = build_kernels(columns, k);
  return *kernels;
}

bool OnednnMatmul::is_supported() {
  use_one_onednn_thread();
  try {
    kernels_for(kSlabColumnAlign, kSlabColumnAlign);
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

std::unique_ptr<PackedMatrix> OnednnMatmul::pack(ConstMatrixView weights, WeightUse use, ThreadPool*) {
  FERRY_CHECK(weights.dtype == dtype_);
  use_one_onednn_thread();
  const int64_t n = weights.rows, k = even_k(weights.cols, dtype_);
  const int64_t width = slab_columns(k, dtype_);
  std::vector<Slab> slabs;
  std::size_t bytes = 0;
  for (int64_t first = 0; first < n; first += width) {
    const int64_t columns = std::min(width, n - first);
    const SlabKernels& kernels = kernels_for(columns, k);
    slabs.push_back({first, columns, bytes, &kernels});
    bytes +=
        (kernels.weights.get_size() + AlignedBuffer::kAlignment - 1) / AlignedBuffer::kAlignment * AlignedBuffer::kAlignment;
  }
  AlignedBuffer buffer(bytes);
  for (const Slab& slab : slabs) {
    const ConstMatrixView rows = weights.rows_from(slab.first_column, slab.columns);
    const Matrix wide = k > rows.cols ? widened(rows, k) : Matrix();
    pack_slab(k > rows.cols ? wide.view() : rows, slab.kernels->weights, buffer.data() + slab.offset);
  }
  return std::make_unique<OnednnMatrix>(n, weights.cols, dtype_, use, std::move(slabs), std::move(buffer));
}

void OnednnMatmul::run_task(ThreadScratch& scratch, const Task& task, ConstMatrixView x, MatrixView out) {
  const int64_t k = even_k(task.weights->k(), dtype_);
  const int64_t element = dtype_bytes(dtype_);
  std::byte* dst = ThreadScratch::ensure(scratch.dst, kMaxBlockRows * kMaxSlabColumns * element);
  const auto out_bytes = static_cast<std::size_t>(task.slab->columns * element);
  for (int64_t done = 0; done < task.num_rows;) {
    const int64_t left = task.num_rows - done;
    const SlabKernels::Block& block = task.slab->kernels->choose(left);
    const int64_t rows = std::min(block.rows, left);
    const ConstMatrixView src = x.rows_from(task.first_row + done, rows);
    auto* src_data = const_cast<std::byte*>(src.data);
    if (rows < block.rows || src.row_stride != k || src.cols != k) {
      src_data = ThreadScratch::ensure(scratch.src, kMaxBlockRows * k * element);
      for (int64_t r = 0; r < rows; ++r) {
        std::byte* row = src_data + r * k * element;
        std::memcpy(row, src.row_bytes(r), static_cast<std::size_t>(src.cols * element));
        std::memset(row + src.cols * element, 0, static_cast<std::size_t>((k - src.cols) * element));
      }
    }
    run_block(scratch, block, task.slab->kernels->weights, src_data, task.weights->slab_data(*task.slab), dst);
    const MatrixView columns = out.cols_from(task.slab->first_column, task.slab->columns);
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(columns.row_bytes(task.first_row + done + r), dst + r * task.slab->columns * element, out_bytes);
    }
    done += rows;
  }
}

void OnednnMatmul::grouped_matmul(Stream& stream, const GroupedMatmulArgs& args) {
  const auto first = std::ranges::find_if(args.weights, [](const PackedMatrix* w) { return w != nullptr; });
  if (first == args.weights.end()) return multiply_groups(stream.pool(), args, args.out);
  check_finish(args, **first);
  if (args.finish.bias.raw() != nullptr) return multiply_and_finish(stream, args);
  if (!(*first)->is_gated()) return multiply_groups(stream.pool(), args, args.out);
  const MatrixView gate_up = inner_rows(args.out.rows, (*first)->n());
  multiply_groups(stream.pool(), args, gate_up);
  stream.backend().run<SwigluArgs>(&OpTable::swiglu, stream, {.gate_up = gate_up, .out = args.out});
}

/// The products are rounded before the bias is added; they need a place of their own where out is also the residual.
void OnednnMatmul::multiply_and_finish(Stream& stream, const GroupedMatmulArgs& args) {
  const ProductFinish& finish = args.finish;
  const MatrixView products = inner_rows(args.out.rows, args.out.cols);
  multiply_groups(stream.pool(), args, products);
  stream.backend().run<AddBiasArgs>(&OpTable::add_bias, stream,
                                    {.x = products,
                                     .bias = finish.bias.raw(),
                                     .activation = finish.activation,
                                     .residual = finish.residual,
                                     .out = args.out});
}

MatrixView OnednnMatmul::inner_rows(int64_t rows, int64_t cols) {
  if (inner_.rows() < rows || inner_.cols() != cols) inner_ = Matrix(dtype_, rows, cols);
  return inner_.top(rows);
}

void OnednnMatmul::multiply_groups(ThreadPool& pool, const GroupedMatmulArgs& args, MatrixView out) {
  const ConstMatrixView x = args.rows.x;
  FERRY_CHECK(x.dtype == dtype_ && out.dtype == dtype_);
  FERRY_CHECK_EQ(args.counts.size(), args.weights.size());
  while (scratch_.size() < static_cast<std::size_t>(pool.num_threads())) {
    scratch_.push_back(std::make_unique<ThreadScratch>(engine_));
  }
  tasks_.clear();
  int64_t first_row = 0;
  for (std::size_t g = 0; g < args.counts.size(); ++g) {
    const int64_t count = args.counts[g];
    if (count > 0) {
      const auto* weights = static_cast<const OnednnMatrix*>(args.weights[g]);
      FERRY_CHECK_EQ(weights->k(), x.cols);
      FERRY_CHECK_EQ(weights->n(), out.cols);
      for (const Slab& slab : weights->slabs()) {
        for (int64_t row = 0; row < count; row += kMaxTaskRows) {
          tasks_.push_back({weights, &slab, first_row + row, std::min(kMaxTaskRows, count - row)});
        }
      }
    }
    first_row += count;
  }
  FERRY_CHECK_EQ(first_row, x.rows);
  FERRY_CHECK_EQ(first_row, out.rows);
  pool.parallel_for(static_cast<int64_t>(tasks_.size()), [&](int64_t task_idx, int thread_idx) {
    use_one_onednn_thread();
    run_task(*scratch_[static_cast<std::size_t>(thread_idx)], tasks_[static_cast<std::size_t>(task_idx)], x, out);
  });
}

}  // namespace

std::unique_ptr<Matmul> make_onednn_matmul(DType dtype) {
  auto backend = std::make_unique<OnednnMatmul>(dtype);
  if (!backend->is_supported()) return nullptr;
  return backend;
}

std::string onednn_version() {
  const dnnl_version_t& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + "." + std::to_string(version.minor) + "." + std::to_string(version.patch);
}

}  // namespace ferry
