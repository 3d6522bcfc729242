#include "runtime/expert_canary.h"

#include <utility>
#include <vector>

#include "kernels/host_rows.h"
#include "runtime/base/content_hash.h"

namespace ferry {
namespace {

/// Value i of the row, -127 to 127: Knuth's multiplicative hash (The Art of Computer Programming 3, 6.4).
int32_t canary_value(int64_t i) {
  const uint32_t hash = static_cast<uint32_t>(i + 1) * 2654435761U;
  return static_cast<int32_t>((hash >> 8) % 255) - 127;
}

/// Where the stream's backend reads it.
Matrix make_row(Stream& stream, DType dtype, int64_t hidden_dim) {
  Matrix host(dtype, 1, row_cols(dtype, hidden_dim));
  if (dtype == DType::kI8) {
    auto* codes = reinterpret_cast<int8_t*>(host.view().data);
    for (int64_t i = 0; i < hidden_dim; ++i) codes[i] = static_cast<int8_t>(canary_value(i));
  } else {
    visit_dtype(dtype, [&]<class T>() {
      for (int64_t i = 0; i < hidden_dim; ++i)
        host.view().template row<T>(0)[i] = from_float<T>(static_cast<float>(canary_value(i)) / 128);
    });
  }
  Matrix row(stream.memory(), dtype, 1, host.cols());
  copy_rows(stream, host.view(), row.view());
  return row;
}

constexpr float kScale = 1.0F / 128;

}  // namespace

ExpertCanary::ExpertCanary(const ExpertDims& dims, WeightType type, DType dtype, Stream& stream)
    : stream_(stream),
      ffn_(dims, type, stream, dtype, 1),
      row_(make_row(stream, type.is_integer() ? DType::kI8 : dtype, dims.hidden_dim)),
      scales_(stream.memory(), std::vector<float>{kScale}),
      out_(stream.memory(), dtype, 1, dims.hidden_dim) {}

uint64_t ExpertCanary::sing(const PackedExpert& expert) {
  const PackedMatrix* const gate_up = expert.gate_up.get();
  const PackedMatrix* const down = expert.down.get();
  const int32_t token = 0, count = 1;
  MatmulRows rows{row_.view()};
  if (row_.dtype() == DType::kI8) rows.scales = std::as_const(scales_).data();
  ffn_.run({.gate_up = {&gate_up, 1}, .down = {&down, 1}},
           {.tokens = rows, .row_token = {&token, 1}, .expert_counts = {&count, 1}}, out_.view());
  HostRows look(stream_, out_.dtype(), 1, out_.cols());
  look.fetch(out_.view());
  const ConstMatrixView row = look.look();
  return content_hash({row.data, static_cast<std::size_t>(row.cols * dtype_bytes(row.dtype))});
}

}  // namespace ferry
