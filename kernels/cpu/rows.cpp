#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.h"

namespace ferry::FERRY_ISA_NAMESPACE {
namespace {

template <class From, class T>
void convert_row(const From* from, T* to, int64_t cols) {
  for_each_vector(cols, [=](int64_t i, auto lanes) { store(to + i, load(from + i, lanes), lanes); });
}

void copy_bytes(std::byte* to, const std::byte* from, int64_t num_bytes) {
  __builtin_memcpy(to, from, static_cast<std::size_t>(num_bytes));
}

template <class View>
[[gnu::always_inline]] inline auto bytes_of_row(const View& view, int64_t r) {
  return view.data + r * view.row_stride * dtype_bytes(view.dtype);
}

/// Sums the weighted rows of one token; the sum of a column stays in a register.
template <class T>
void combine_token(const std::byte* const* slot_rows, const float* slot_weights, int64_t num_slots, T* out, int64_t cols) {
  while (num_slots > 0 && slot_rows[num_slots - 1] == nullptr) --num_slots;
  for_each_vector(cols, [=](int64_t i, auto lanes) {
    F32x16 sum(0.0f);
    for (int64_t k = 0; k < num_slots; ++k) {
      sum = sum + rounded<T>(load(reinterpret_cast<const T*>(slot_rows[k]) + i, lanes) * slot_weights[k]);
    }
    store(out + i, sum, lanes);
  });
}

/// Codes of one group of columns; returns its exponent (kernels/kv_layout.h).
template <class T>
uint8_t encode_group(const T* x, int64_t count, int8_t* codes) {
  constexpr float kRoundingShift = 12582912.0f;  // 1.5 * 2^23: adding and taking it away rounds to the nearest integer
  F32x16 largest(0.0f), poison(0.0f);            // 0 * NaN and 0 * infinity are NaN
  for_each_vector(count, [&](int64_t i, auto lanes) {
    const F32x16 v = load(x + i, lanes);
    largest = max(max(v, -v), largest);
    poison = fma(v, 0.0f, poison);
  });
  const float magnitude = horizontal_max(largest) + horizontal_sum(poison);
  const bool is_nan = magnitude != magnitude;
  const int exponent = static_cast<int>(__builtin_bit_cast(uint32_t, magnitude) >> 23) - (kKvCodeBits - 1);
  if (is_nan || exponent < 1) {
    __builtin_memset(codes, 0, static_cast<std::size_t>(count));
    return is_nan ? kKvNanExponent : uint8_t{0};
  }
  const F32x16 most(static_cast<float>(kKvMostCode));
  const float inverse = __builtin_bit_cast(float, static_cast<uint32_t>(254 - exponent) << 23);
  for_each_vector(count, [&](int64_t i, auto lanes) {
    const F32x16 scaled = rounded<float>(load(x + i, lanes) * inverse);
    const F32x16 nearest = rounded<float>(scaled + kRoundingShift) - kRoundingShift;
    const F32x16 kept = min(max(nearest, -most), most);
    store_codes(codes + i, kept, count - i < kLanes ? count - i : kLanes);
  });
  return static_cast<uint8_t>(exponent);
}

template <class T>
void encode_row(const T* x, const KvLayerView& cache, std::byte* run, int64_t slot) {
  auto* codes = reinterpret_cast<int8_t*>(run) + slot * cache.head_dim;
  auto* exponents = reinterpret_cast<uint8_t*>(run) + cache.block_tokens * cache.head_dim + slot * kv_groups(cache.head_dim);
  for (int64_t d = 0; d < cache.head_dim; d += kKvGroupCols) {
    const int64_t left = cache.head_dim - d;
    *exponents++ = encode_group(x + d, left < kKvGroupCols ? left : kKvGroupCols, codes + d);
  }
}

/// Writes one token's keys or values, head by head, to their place in the cache.
void append_token(const ConstMatrixView& rows, int64_t row, const KvLayerView& cache, std::byte* base, int32_t block_id,
                  int64_t slot) {
  const int64_t head_bytes = cache.head_dim * dtype_bytes(rows.dtype);
  std::byte* run = base + block_id * cache.num_kv_heads * cache.run_bytes();
  for (int64_t h = 0; h < cache.num_kv_heads; ++h, run += cache.run_bytes()) {
    if (cache.dtype != DType::kI8) {
      copy_bytes(run + slot * head_bytes, bytes_of_row(rows, row) + h * head_bytes, head_bytes);
    } else {
      visit_dtype(rows.dtype, [&]<class T>() { encode_row(row_of<T>(rows, row) + h * cache.head_dim, cache, run, slot); });
    }
  }
}

}  // namespace

void embed(ThreadPool& pool, const EmbedArgs& args) {
  const int64_t cols = args.out.cols;
  FERRY_CHECK_EQ(args.table.cols, cols);
  FERRY_CHECK_EQ(static_cast<int64_t>(args.ids.size()), args.out.rows);
  visit_dtype(args.out.dtype, [&]<class T>() {
    visit_dtype(args.table.dtype, [&]<class From>() {
      parallel_rows(pool, args.out.rows, cols, [&](int64_t first, int64_t last) {
        for (int64_t r = first; r < last; ++r) {
          const TokenId id = args.ids[static_cast<std::size_t>(r)];
          FERRY_CHECK(id >= 0 && id < args.table.rows) << " token id " << id;
          convert_row(row_of<From>(args.table, id), row_of<T>(args.out, r), cols);
        }
      });
    });
  });
}

void gather_rows(ThreadPool& pool, const GatherRowsArgs& args) {
  FERRY_CHECK_EQ(args.x.cols, args.out.cols);
  FERRY_CHECK(args.x.dtype == args.out.dtype);
  FERRY_CHECK_EQ(static_cast<int64_t>(args.row_idx.size()), args.out.rows);
  const int64_t row_bytes = args.out.cols * dtype_bytes(args.out.dtype);
  parallel_rows(pool, args.out.rows, args.out.cols, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const int32_t source = args.row_idx[static_cast<std::size_t>(r)];
      FERRY_CHECK(source >= 0 && source < args.x.rows) << " row index " << source;
      copy_bytes(bytes_of_row(args.out, r), bytes_of_row(args.x, source), row_bytes);
      if (args.scales) args.out_scales.raw()[r] = args.scales.raw()[source];
    }
  });
}

void kv_append(ThreadPool& pool, const KvAppendArgs& args) {
  check_kv_append(args);
  for (std::size_t s = 0; s < args.sequences.size(); ++s) {
    const SequenceSpan& span = args.sequences[s];
    const int32_t* table = args.block_tables[s];
    FERRY_CHECK_LE(span.first_row + span.num_tokens, args.k.rows);
    parallel_rows(pool, span.num_tokens, 2 * args.k.cols, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        const int64_t position = span.num_past + t;
        const int32_t block_id = table[position / args.cache.block_tokens];
        const int64_t slot = position % args.cache.block_tokens;
        append_token(args.k, span.first_row + t, args.cache, args.cache.keys.raw(), block_id, slot);
        append_token(args.v, span.first_row + t, args.cache, args.cache.values.raw(), block_id, slot);
      }
    });
  }
}

void combine(ThreadPool& pool, const CombineArgs& args) {
  FERRY_CHECK_EQ(static_cast<int64_t>(args.slot_rows.size()), args.out.rows * args.num_slots);
  visit_dtype(args.out.dtype, [&]<class T>() {
    parallel_rows(pool, args.out.rows, args.out.cols * args.num_slots, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        combine_token(args.slot_rows.data() + r * args.num_slots, args.slot_weights.raw() + r * args.num_slots, args.num_slots,
                      row_of<T>(args.out, r), args.out.cols);
      }
    });
  });
}

}  // namespace ferry::FERRY_ISA_NAMESPACE
