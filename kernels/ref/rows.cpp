#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ref/ref_ops.h"

namespace ferry::ref {

void embed(ThreadPool&, const EmbedArgs& args) {
  FERRY_CHECK_EQ(args.table.cols, args.out.cols);
  FERRY_CHECK_EQ(static_cast<int64_t>(args.ids.size()), args.out.rows);
  visit_dtype(args.out.dtype, [&]<class T>() {
    visit_dtype(args.table.dtype, [&]<class From>() {
      for (int64_t r = 0; r < args.out.rows; ++r) {
        const TokenId id = args.ids[static_cast<std::size_t>(r)];
        FERRY_CHECK(id >= 0 && id < args.table.rows) << " token id " << id;
        for (int64_t c = 0; c < args.out.cols; ++c) {
          args.out.row<T>(r)[c] = from_float<T>(to_float(args.table.row<From>(id)[c]));
        }
      }
    });
  });
}

void gather_rows(ThreadPool&, const GatherRowsArgs& args) {
  FERRY_CHECK_EQ(args.x.cols, args.out.cols);
  FERRY_CHECK(args.x.dtype == args.out.dtype);
  FERRY_CHECK_EQ(static_cast<int64_t>(args.row_idx.size()), args.out.rows);
  for (int64_t r = 0; r < args.out.rows; ++r) {
    const int32_t source = args.row_idx[static_cast<std::size_t>(r)];
    FERRY_CHECK(source >= 0 && source < args.x.rows) << " row index " << source;
    std::memcpy(args.out.row_bytes(r), args.x.row_bytes(source),
                static_cast<std::size_t>(args.out.cols * dtype_bytes(args.out.dtype)));
    if (args.scales) args.out_scales.raw()[r] = args.scales.raw()[source];
  }
}

void quantize_rows(ThreadPool&, const QuantizeRowsArgs& args) {
  check_quantized_shape(args);
  visit_dtype(args.x.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.x.rows; ++r) {
      const T* x = args.x.row<T>(r);
      int8_t* codes = args.codes.row<int8_t>(r);
      std::fill_n(codes, args.codes.cols, int8_t{0});
      float largest = 0;
      bool is_finite = true;
      for (int64_t c = 0; c < args.x.cols; ++c) {
        largest = std::max(largest, std::abs(to_float(x[c])));
        is_finite = is_finite && std::isfinite(to_float(x[c]));
      }
      float& scale = args.scales.raw()[r];
      scale = is_finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
      if (is_finite && scale < std::numeric_limits<float>::min()) scale = 0;
      if (!(scale > 0)) continue;
      for (int64_t c = 0; c < args.x.cols; ++c) {
        codes[c] = static_cast<int8_t>(std::nearbyint(to_float(x[c]) * (127.0f / largest)));
      }
    }
  });
}

void kv_append(ThreadPool&, const KvAppendArgs& args) {
  const KvLayerView& cache = args.cache;
  check_same_shape(args.k, args.v);
  FERRY_CHECK(args.k.dtype == cache.dtype);
  FERRY_CHECK_EQ(args.k.cols, cache.num_kv_heads * cache.head_dim);
  FERRY_CHECK_EQ(args.sequences.size(), args.block_tables.size());
  const int64_t head_bytes = cache.head_dim * dtype_bytes(cache.dtype);
  for (std::size_t s = 0; s < args.sequences.size(); ++s) {
    const SequenceSpan& span = args.sequences[s];
    for (int64_t t = 0; t < span.num_tokens; ++t) {
      const int64_t position = span.num_past + t;
      const int64_t block_id = args.block_tables[s][position / cache.block_tokens];
      for (int64_t h = 0; h < cache.num_kv_heads; ++h) {
        const int64_t place = (block_id * cache.num_kv_heads + h) * cache.block_tokens + position % cache.block_tokens;
        const std::byte* k = args.k.row_bytes(span.first_row + t) + h * head_bytes;
        const std::byte* v = args.v.row_bytes(span.first_row + t) + h * head_bytes;
        std::memcpy(cache.keys.raw() + place * head_bytes, k, static_cast<std::size_t>(head_bytes));
        std::memcpy(cache.values.raw() + place * head_bytes, v, static_cast<std::size_t>(head_bytes));
      }
    }
  }
}

void expert_rows(ThreadPool&, const ExpertRowsArgs& args) {
  const int64_t num_rows = args.num_tokens * args.top_k;
  std::fill_n(args.counts.raw(), args.num_experts, 0);
  for (int64_t slot = 0; slot < num_rows; ++slot) ++args.counts.raw()[args.topk_idx.raw()[slot]];
  int32_t row = 0;
  for (int64_t expert = 0; expert < args.num_experts; ++expert) {
    args.row_totals.raw()[expert] += static_cast<uint32_t>(args.counts.raw()[expert]);
    const RowRun run{.group = static_cast<int32_t>(expert), .first_row = row, .num_rows = args.counts.raw()[expert]};
    for (int64_t slot = 0; slot < num_rows; ++slot) {
      if (args.topk_idx.raw()[slot] != expert) continue;
      args.row_runs.raw()[row] = run;
      args.row_token.raw()[row] = static_cast<int32_t>(slot / args.top_k);
      args.slot_row.raw()[slot] = row++;
    }
  }
}

namespace {

/// Null ends a token's.
const std::byte* slot_row(const CombineArgs& args, int64_t slot) {
  if (args.rows.data != nullptr) return args.rows.row_bytes(args.slot_row.raw()[slot]);
  return args.slot_rows[static_cast<std::size_t>(slot)];
}

}  // namespace

void combine(ThreadPool&, const CombineArgs& args) {
  FERRY_CHECK(args.rows.data != nullptr || std::ssize(args.slot_rows) == args.out.rows * args.num_slots);
  visit_dtype(args.out.dtype, [&]<class T>() {
    for (int64_t r = 0; r < args.out.rows; ++r) {
      for (int64_t c = 0; c < args.out.cols; ++c) {
        float sum = 0.0f;
        for (int64_t slot = r * args.num_slots; slot < (r + 1) * args.num_slots; ++slot) {
          const T* row = reinterpret_cast<const T*>(slot_row(args, slot));
          if (row == nullptr) break;
          sum += round_to<T>(args.slot_weights.raw()[slot] * to_float(row[c]));
        }
        args.out.row<T>(r)[c] = from_float<T>(sum);
      }
    }
  });
}

}  // namespace ferry::ref
