#include "kernels/op_checks.h"

#include "kernels/weight_format.h"
#include "runtime/base/check.h"

namespace ferry {

void check_same_shape(const ConstMatrixView& a, const ConstMatrixView& b) {
  FERRY_CHECK_EQ(a.rows, b.rows);
  FERRY_CHECK_EQ(a.cols, b.cols);
  FERRY_CHECK(a.dtype == b.dtype);
}

void check_bias_shape(const AddBiasArgs& args) {
  check_same_shape(args.x, args.out);
  if (args.residual.data == nullptr) return;
  check_same_shape(args.residual, args.out);
  FERRY_CHECK(args.activation == BiasActivation::kNone);
}

void check_kv_append(const KvAppendArgs& args) {
  const KvLayerView& cache = args.cache;
  check_same_shape(args.k, args.v);
  FERRY_CHECK(args.k.dtype != DType::kI8 && (cache.dtype == args.k.dtype || cache.dtype == DType::kI8));
  FERRY_CHECK_EQ(args.k.cols, cache.num_kv_heads * cache.head_dim);
  FERRY_CHECK_EQ(args.sequences.size(), args.block_tables.size());
}

void check_attention(const AttentionArgs& args) {
  const KvLayerView& cache = args.cache;
  FERRY_CHECK(args.q.dtype == args.out.dtype && args.q.dtype != DType::kI8);
  FERRY_CHECK(cache.dtype == args.q.dtype || cache.dtype == DType::kI8);
  FERRY_CHECK_EQ(args.num_heads % cache.num_kv_heads, 0);
  FERRY_CHECK_EQ(args.q.cols, args.num_heads * cache.head_dim);
  FERRY_CHECK_EQ(args.out.cols, args.num_heads * cache.head_dim);
  FERRY_CHECK_EQ(args.sequences.size(), args.block_tables.size());
}

void check_segments(const SegmentAttentionArgs& args) {
  for (const ConstMatrixView& rows : {args.q, args.k, args.v}) check_same_shape(rows, args.out);
  FERRY_CHECK_EQ(args.out.cols % args.num_heads, 0);
  int64_t end = 0;
  for (const int64_t next : args.segment_ends) {
    FERRY_CHECK_LE(end, next);
    end = next;
  }
  FERRY_CHECK_EQ(end, args.out.rows);
}

void check_quantized_shape(const QuantizeRowsArgs& args) {
  FERRY_CHECK(args.codes.dtype == DType::kI8);
  FERRY_CHECK_EQ(args.codes.cols, quantized_cols(args.x.cols));
  FERRY_CHECK_EQ(args.codes.rows, args.x.rows);
}

}  // namespace ferry
