#pragma once

#include <cstdint>

// Small matrix products of bf16 on scratch memory, with sums in fp32: the sibling of tile_matmul.h. Factors are words of two
// bf16 that follow each other along k. A unit multiplies them:
//
//   kRows              rows of C that it computes at a time, at most kPairSide
//   a constructor      makes the unit this thread's until it is destroyed
//   multiply(product)  computes one
//
// The products of an element of C are added in an order that no other row or column changes.

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

constexpr int64_t kPairSide = 32;   // columns of C are multiples of it
constexpr int64_t kPairBlock = 16;  // words that a unit may take at a time

/// C = c_scale C + A B.
struct PairProduct {
  const uint32_t* a;  // [m, num_pairs] words, rows a_stride apart
  int64_t a_stride;
  const uint32_t* b;  // [num_pairs, n] words, rows b_stride apart
  int64_t b_stride;
  float* c;  // [m, n] rows c_stride apart
  int64_t c_stride;
  int64_t m;          // a multiple of the unit's kRows
  int64_t n;          // a multiple of kPairSide
  int64_t num_pairs;  // behind which both factors are zeros up to a multiple of kPairBlock
  float c_scale;      // at 0, C is written without being read
};

}  // namespace
}  // namespace ferry::FERRY_ISA_NAMESPACE
