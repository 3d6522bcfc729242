#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops.h"
#include "kernels/quantize.h"
#include "kernels/stream.h"
#include "profiler/zones.h"

// Matrix products x W^T with weights that are packed once at load.
//
//   plain weights       out[m, n] = T(sum_k x[m, k] W[n, k]), fp32 accumulation, one rounding
//   quantised weights   x as int8 codes with a scale a row: out[m, n] = T(x_scale[m] * sum_k x_code[m, k] W[n, k]), the sums of
//                       codes exact (int4: within a group; groups are added in fp32 in ascending k)
//   gated weights       W's rows are gates above ups: out[m, i] = T(T(silu(T(gate))) * T(up)), n / 2 columns
//
// Rule: a row's result depends on that row and the weights alone. The order in which k is summed is the same for every number
// of rows, every position in the batch and every number of threads. (onednn/ proves this per shape when a shape is first used.)
//
// A bias, and what follows it, can be part of a product (ProductFinish). oneDNN's are rounded before it is added.
//
// A NaN or an infinity in a row of x makes that row's results NaN or infinite (quantised: all NaN) and no other's.

namespace ferry {

enum class WeightUse : uint8_t { kPlain, kGated };

/// A weight matrix [n, k] in the layout of the implementation that packed it. Immutable; any thread may read it.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  PackedMatrix(const PackedMatrix&) = delete;
  PackedMatrix& operator=(const PackedMatrix&) = delete;

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  WeightType type() const { return type_; }
  bool is_gated() const { return use_ == WeightUse::kGated; }
  /// Columns of a product.
  int64_t out_cols() const { return is_gated() ? n_ / 2 : n_; }
  virtual int64_t packed_bytes() const = 0;

 protected:
  PackedMatrix(int64_t n, int64_t k, WeightType type, WeightUse use) : n_(n), k_(k), type_(type), use_(use) {}

 private:
  int64_t n_, k_;
  WeightType type_;
  WeightUse use_;
};

/// Rows to multiply: values in the run's dtype, or codes of kI8 with a scale each for quantised weights.
struct MatmulRows {
  ConstMatrixView x;  // [rows, k], codes [rows, quantized_cols(k)]
  Address<const float> scales;

  MatmulRows rows_from(int64_t first, int64_t count) const {
    return {x.rows_from(first, count), scales ? scales + first : nullptr};
  }
};

/// What becomes of the sums of plain weights, in place of out = T(sum): y = T(sum + bias), and as of add_bias()
/// out = T(activation(y)), or T(residual + y) with a residual.
struct ProductFinish {
  Address<const float> bias;  // [out_cols]; null: none of this
  BiasActivation activation = BiasActivation::kNone;
  ConstMatrixView residual{};  // [rows, out_cols] T, may be out; or no data; not with an activation
};

/// Groups of consecutive rows, each with its own weights: rows of group g times weights[g].
struct GroupedMatmulArgs {
  MatmulRows rows;                               // sum(counts) rows
  std::span<const int32_t> counts;               // [num_groups] rows per group, zeros allowed
  std::span<const PackedMatrix* const> weights;  // [num_groups] of one shape and type; may be null where the count is zero
  MatrixView out;                                // [sum(counts), out_cols] T
  ProductFinish finish{};                        // of all groups
  // In place of counts, where the host does not know them (has_device_counts()); the weights of every group are there.
  Address<const int32_t> device_counts{};  // [num_groups], of all rows of out together
  Address<const RowRun> row_runs{};        // [rows of out] beside device_counts
  bool are_counts_as_before = false;       // they are those of the last call, with as many rows
  Address<const int32_t> row_idx{};        // [rows of out] row i is rows.x[row_idx[i]]; none: rows.x[i]
};

/// One of several products that need nothing of one another, such as those of the same rows.
struct NamedProduct {
  Zone zone{};  // what the trace calls it
  MatmulRows rows;
  const PackedMatrix* weights = nullptr;
  MatrixView out;  // [rows, out_cols] T
};

/// One way to multiply. Chosen once at start; packs and multiplies its own layout only.
class Matmul {
 public:
  virtual ~Matmul() = default;
  virtual const char* name() const = 0;

  /// Packs `weights` [n, k], whose dtype is the run's. Thread-safe without a pool: experts are packed in parallel. The threads
  /// of a pool may share one large matrix.
  virtual std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights, WeightUse use = WeightUse::kPlain,
                                             ThreadPool* pool = nullptr) = 0;
  virtual std::unique_ptr<PackedMatrix> pack(const QuantizedMatrix& weights, WeightUse use = WeightUse::kPlain,
                                             ThreadPool* pool = nullptr) = 0;
  /// A matrix [n, k] of codes whose panels (cpu/panel_layout.h) are packed already: as many as the shape asks for, from a
  /// multiple of 64 bytes on. Where borrows_panels() they must outlive the result; implementations with another layout make
  /// theirs of them, by default of their codes. Threads as pack().
  virtual std::unique_ptr<PackedMatrix> adopt(int64_t n, int64_t k, WeightType type, WeightUse use,
                                              std::span<const std::byte> panels, ThreadPool* pool = nullptr);
  virtual bool borrows_panels() const { return false; }

  /// Whether counts may be the device's.
  virtual bool has_device_counts() const { return false; }
  /// One thread at a time.
  virtual void grouped_matmul(Stream& stream, const GroupedMatmulArgs& args) = 0;

  /// A grouped product with one group.
  void matmul(Stream& stream, const MatmulRows& rows, const PackedMatrix& weights, MatrixView out,
              const ProductFinish& finish = {});
  /// One after the other, or side by side, where what it takes to start and end a product counts; each is a span of the trace.
  /// Those that ran side by side share their time by the bytes of their weights, which are what the time goes to.
  virtual void matmuls(Stream& stream, std::span<const NamedProduct> products);
};

/// The product of the stream's backend, whose Matmul packed the weights.
void grouped_matmul(Stream& stream, const GroupedMatmulArgs& args);
/// A grouped product with one group.
void matmul(Stream& stream, const MatmulRows& rows, const PackedMatrix& weights, MatrixView out,
            const ProductFinish& finish = {});
/// Several products, as of Matmul::matmuls().
void matmuls(Stream& stream, std::span<const NamedProduct> products);

/// Checks what implementations share: the finish fits the product.
void check_finish(const GroupedMatmulArgs& args, const PackedMatrix& weights);
/// That, and that the rows are what the weights' type multiplies, and the result is as wide as they make it.
void check_operands(const GroupedMatmulArgs& args, const PackedMatrix& weights);

/// The naive oracle: row-major weights, serial sum over k.
std::unique_ptr<Matmul> make_ref_matmul();
/// Own kernels: "amx", "avx512_bf16", "avx512_vnni", "avx512" or "avx2"; "" takes the best that runs here. Throws Error.
std::unique_ptr<Matmul> make_cpu_matmul(const std::string& kernels);
/// The names that make_cpu_matmul takes on this processor, best first.
std::vector<std::string> cpu_matmul_names();
/// oneDNN primitives, for plain weights. Returns null where oneDNN has no matrix product for `dtype` on this processor.
std::unique_ptr<Matmul> make_onednn_matmul(DType dtype);

/// Version of the oneDNN library, such as "oneDNN 2.7.2".
std::string onednn_version();

/// "auto" takes the best own kernels, or "ref" where there are none or the other operations run on `ops_name` "ref"; "onednn",
/// "ref" and the names of own kernels force one.
/// Throws Error that lists what runs here.
std::unique_ptr<Matmul> select_matmul(const std::string& name, DType dtype, std::string_view ops_name = "");

}  // namespace ferry
