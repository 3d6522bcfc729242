// Cooperative matrices of products, behind matmul_common.glsl: a fragment of the result is kFragmentM columns of the product x
// kFragmentN rows, the transpose of how it lies in memory, so that weights [columns, k] are the left factor as they are packed.
// Sums are fp32 or, of codes, int32.

layout(constant_id = 3) const uint kFragmentM = 16;
layout(constant_id = 4) const uint kFragmentN = 16;
layout(constant_id = 5) const uint kFragmentK = 16;
layout(constant_id = 6) const uint kSubgroupSize = 32;
layout(constant_id = 7) const uint kTileRows = 16;  // rows of a MatmulTile at most; a multiple of kFragmentN

#ifdef W_BF16
#define ELEMENT bfloat16_t
#define SUM float
const uint kElementBytes = 2;
#define UNIT uvec4  // what shared memory is made of: no more than a fragment's row
const uint kPieceUnits = 1;
#else
#define ELEMENT int8_t
#define SUM int
const uint kElementBytes = 1;
#define UNIT uvec2
const uint kPieceUnits = 2;
#endif
const uint kUnitBytes = 16 / kPieceUnits;

layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer Elements { ELEMENT v[]; };

#define LEFT coopmat<ELEMENT, gl_ScopeSubgroup, kFragmentM, kFragmentK, gl_MatrixUseA>
#define RIGHT coopmat<ELEMENT, gl_ScopeSubgroup, kFragmentK, kFragmentN, gl_MatrixUseB>
#define SUMS coopmat<SUM, gl_ScopeSubgroup, kFragmentM, kFragmentN, gl_MatrixUseAccumulator>
const uint kFragmentSize = kFragmentM * kFragmentN;
const uint kSubgroups = gl_WorkGroupSize.x / kSubgroupSize;

// K is cut into segments of this many tiles of 16 elements of bf16. Each is summed from zero, fragment by fragment, and the
// segments are added to zero in ascending order: in the same way by the kernel for few rows and by the one for many.
const uint kSegmentTiles = 32;

// A sum of column `lane` of a panel and row `row` of the call.
float product_sum(uint64_t weights, uint panel, uint lane, uint row, SUM sum) {
#ifdef W_INT8
  precise float product = float(sum) * F32(words_address(weights, panel, 0, 1, 4)).v[lane] * x_scale(row);
  return product;
#else
  return sum;
#endif
}
