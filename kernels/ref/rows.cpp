#include <algorithm>
#include <bit>
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

namespace {

/// Codes of one group of columns; returns its exponent.
template <class T>
uint8_t encode_group(const T* x, int64_t count, int8_t* codes) {
  float largest = 0;
  bool is_finite = true;
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = 0;
    largest = std::max(largest, std::abs(to_float(x[i])));
    is_finite = is_finite && std::isfinite(to_float(x[i]));
  }
  if (!is_finite) return kKvNanExponent;
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(largest) >> 23) - (kKvCodeBits - 1);
  if (exponent < 1) return 0;
  for (int64_t i = 0; i < count; ++i) {
    const float nearest = std::nearbyint(std::ldexp(to_float(x[i]), 127 - exponent));
    codes[i] = static_cast<int8_t>(std::clamp<float>(nearest, -kKvMostCode, kKvMostCode));
  }
  return static_cast<uint8_t>(exponent);
}

/// One token's keys or values of one head, to row `slot` of `run`.
template <class T>
void append_row(const KvLayerView& cache, const T* x, std::byte* run, int64_t slot) {
  if (cache.dtype != DType::kI8) {
    const auto bytes = static_cast<std::size_t>(cache.head_dim) * sizeof(T);
    std::memcpy(run + static_cast<std::size_t>(slot) * bytes, x, bytes);
    return;
  }
  auto* codes = reinterpret_cast<int8_t*>(run) + slot * cache.head_dim;
  auto* exponents = reinterpret_cast<uint8_t*>(run) + cache.block_tokens * cache.head_dim + slot * kv_groups(cache.head_dim);
  for (int64_t d = 0; d < cache.head_dim; d += kKvGroupCols)
    exponents[d / kKvGroupCols] = encode_group(x + d, std::min(kKvGroupCols, cache.head_dim - d), codes + d);
}

}  // namespace

void kv_append(ThreadPool&, const KvAppendArgs& args) {
  const KvLayerView& cache = args.cache;
  check_kv_append(args);
  for (std::size_t s = 0; s < args.sequences.size(); ++s) {
    const SequenceSpan& span = args.sequences[s];
    for (int64_t t = 0; t < span.num_tokens; ++t) {
      const int64_t position = span.num_past + t;
      const int64_t block_id = args.block_tables[s][position / cache.block_tokens];
      const int64_t slot = position % cache.block_tokens;
      for (int64_t h = 0; h < cache.num_kv_heads; ++h) {
        const int64_t run = (block_id * cache.num_kv_heads + h) * cache.run_bytes();
        visit_dtype(args.k.dtype, [&]<class T>() {
          append_row(cache, args.k.row<T>(span.first_row + t) + h * cache.head_dim, cache.keys.raw() + run, slot);
          append_row(cache, args.v.row<T>(span.first_row + t) + h * cache.head_dim, cache.values.raw() + run, slot);
        });
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
