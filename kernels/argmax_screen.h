#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/matmul.h"

namespace ferry {

/// The highest logits of rows without all logits. Beside the weights W [n, k] in bf16 there is a copy in 8 bits: products with
/// it take half the time, and each tells between which two numbers the bf16 product lies. Columns that may be the highest are
/// multiplied in bf16 by the kernel that multiplies all of them elsewhere. So what is chosen is what argmax() chooses of the
/// whole product, to the last bit and among equals: the bounds hold for every x and W.
/// Where they are too wide to tell columns apart (rows that are not finite, many near equals), so many more columns are
/// multiplied in bf16, at worst all.
///
/// With x^ and w^ for what the codes stand for, f for the kernel's sum in fp32, whatever its order, and u = 2^-24:
///
///   |f - x^ w^| <= |x^| |w - w^| + |x - x^| |w| + gamma |x| |w|,   gamma = (k + 64) u,   |.| Euclidean norms
///
/// to which comes the rounding of x^ w^ itself, 8 u |x^| |w^|, and what denormals lose. (Higham, Accuracy and Stability of
/// Numerical Algorithms, 2nd edition, section 3.1; Cauchy and Schwarz.) bf16 results are rounded before they are compared, and
/// rounding keeps an order: a column is out if its upper bound, rounded, is below the best lower bound, rounded.
///
/// Few rows, for which memory is what takes the time, get codes of 8 bits twice, the second for what the first leave; of many
/// rows those whose largest values leave the others few bits.
///
/// One thread at a time; allocates nothing after construction.
class ArgmaxScreen {
 public:
  struct Count {
    int64_t columns = 0;  // of all rows
    int64_t in_bf16 = 0;  // of those, as many as were multiplied in bf16
  };

  virtual ~ArgmaxScreen() = default;
  ArgmaxScreen(const ArgmaxScreen&) = delete;
  ArgmaxScreen& operator=(const ArgmaxScreen&) = delete;

  /// Of the copy in 8 bits and what belongs to it.
  virtual int64_t packed_bytes() const = 0;
  /// For each r of `rows`: ids[r] as argmax() makes it of columns 0 ‥ num_cols-1 of the product x W^T in bf16. `x` [R, k]
  /// bf16, of which at most max_rows are asked for. Returns false, and does nothing, where so many rows need codes twice that
  /// the whole product takes less time.
  virtual bool argmax(Stream& stream, ConstMatrixView x, int64_t num_cols, std::span<const int32_t> rows, int32_t* ids) = 0;
  /// Of all calls so far.
  virtual Count count() const = 0;

 protected:
  ArgmaxScreen() = default;
};

/// Bytes of the copy of a matrix [n, k].
int64_t argmax_screen_bytes(int64_t n, int64_t k);

/// Whether there can be one of bf16 weights that `matmul` packs: of the CPU's own kernels.
bool has_argmax_screen(const Matmul& matmul);

/// Makes the copy, with the threads of `pool`, whose size the calls' pools have at most. `weights`, which outlives the result,
/// was packed by `matmul`. Null where there can be none: of weights other than plain bf16 or with rows of more than
/// kMaxQuantizedK, and of other products than the CPU's own kernels'.
std::unique_ptr<ArgmaxScreen> make_argmax_screen(const Matmul& matmul, const PackedMatrix& weights, int64_t max_rows,
                                                 ThreadPool& pool);

}  // namespace ferry
