#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/ops.h"

// Matrix products x W^T with weights that are packed once at load. out[m, n] = T(sum_k x[m, k] W[n, k]), fp32 accumulation,
// one rounding.
//
// Rule: a row's result depends on that row and the weights alone. The order in which k is summed is the same for every number
// of rows, every position in the batch and every number of threads. (onednn/ proves this per shape when a shape is first used.)

namespace ferry {

/// A weight matrix [n, k] in the layout of the implementation that packed it. Immutable; any thread may read it.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  PackedMatrix(const PackedMatrix&) = delete;
  PackedMatrix& operator=(const PackedMatrix&) = delete;

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  DType dtype() const { return dtype_; }
  virtual int64_t packed_bytes() const = 0;

 protected:
  PackedMatrix(int64_t n, int64_t k, DType dtype) : n_(n), k_(k), dtype_(dtype) {}

 private:
  int64_t n_, k_;
  DType dtype_;
};

/// Groups of consecutive rows, each with its own weights: rows of group g times weights[g].
struct GroupedMatmulArgs {
  ConstMatrixView x;                             // [sum(counts), k]
  std::span<const int32_t> counts;               // [num_groups] rows per group, zeros allowed
  std::span<const PackedMatrix* const> weights;  // [num_groups] all [n, k]; may be null where the count is zero
  MatrixView out;                                // [sum(counts), n], same dtype as x
};

/// One way to multiply. Chosen once at start; packs and multiplies its own layout only.
class MatmulBackend {
 public:
  virtual ~MatmulBackend() = default;
  virtual const char* name() const = 0;

  /// Packs `weights` [n, k], whose dtype is the run's. Thread-safe: experts are packed in parallel.
  virtual std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights) = 0;

  /// One thread at a time; runs on `pool`.
  virtual void grouped_matmul(ThreadPool& pool, const GroupedMatmulArgs& args) = 0;

  /// out = x W^T: a grouped product with one group.
  void matmul(ThreadPool& pool, ConstMatrixView x, const PackedMatrix& weights, MatrixView out);
};

/// The naive oracle: row-major weights, serial sum over k.
std::unique_ptr<MatmulBackend> make_ref_matmul();
/// Own vector kernels; `isa` is "avx2" or "avx512".
std::unique_ptr<MatmulBackend> make_cpu_matmul(const char* isa);
/// oneDNN primitives. Returns null where oneDNN has no matrix product for `dtype` on this processor.
std::unique_ptr<MatmulBackend> make_onednn_matmul(DType dtype);

/// Version of the oneDNN library, such as "oneDNN 2.7.2".
std::string onednn_version();

/// The best backend for `dtype`: "auto" takes oneDNN, else the vector kernels of `isa`; "onednn", "cpu" and "ref" force one.
/// Throws Error.
std::unique_ptr<MatmulBackend> select_matmul(const char* name, const char* isa, DType dtype);

}  // namespace ferry
