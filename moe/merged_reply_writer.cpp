#include "moe/merged_reply_writer.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runtime/base/check.h"

namespace ferry {
namespace {

int64_t max_rows(const ReplyWriter::Options& options) {
  return options.max_tokens * std::min(options.top_k, options.num_experts);
}

}  // namespace

struct MergedReplyWriter::Rows {
  LogicalExpertId expert;
  std::size_t part;
  int64_t local;  // the expert's place in the part
  int64_t first;  // of its rows in the part
  int64_t count;
};

MergedReplyWriter::MergedReplyWriter(const ExpertDims& dims, WeightType type, Stream& stream,
                                     const ReplyWriter::Options& options)
    : stream_(stream),
      options_(options),
      token_dtype_(type.is_integer() ? DType::kI8 : options.dtype),
      hidden_dim_(dims.hidden_dim),
      ffn_(dims, type, stream, options.dtype, max_rows(options)),
      tokens_(token_dtype_, options.max_tokens, row_cols(token_dtype_, dims.hidden_dim)),
      scales_(static_cast<std::size_t>(options.max_tokens)),
      out_(options.dtype, max_rows(options), dims.hidden_dim),
      device_tokens_(stream, token_dtype_, options.max_tokens, tokens_.cols()),
      device_scales_(stream, DType::kF32, options.max_tokens, 1),
      device_out_(stream, options.dtype, max_rows(options), dims.hidden_dim) {
  FERRY_CHECK(options.combine == CombineMode::kExact);
}

/// What is to be computed, expert by expert; of one expert, part by part.
std::vector<MergedReplyWriter::Rows> MergedReplyWriter::sort_by_expert(std::span<const Part> parts) const {
  std::vector<Rows> all;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    int64_t first = 0;
    const std::span<const int32_t> counts = parts[p].request->expert_counts;
    for (std::size_t e = 0; e < counts.size(); ++e) {
      if (counts[e] > 0) all.push_back({parts[p].ids[e], p, static_cast<int64_t>(e), first, counts[e]});
      first += counts[e];
    }
  }
  std::ranges::stable_sort(all, {}, [](const Rows& rows) { return rows.expert.value; });
  return all;
}

MatmulRows MergedReplyWriter::gather_tokens(std::span<const Part> parts) {
  int64_t next = 0;
  bool has_scales = false;
  for (const Part& part : parts) {
    const MatmulRows& rows = part.request->tokens;
    const auto row_bytes = static_cast<std::size_t>(rows.x.cols * dtype_bytes(rows.x.dtype));
    for (int64_t t = 0; t < rows.x.rows; ++t) std::memcpy(tokens_.view().row_bytes(next + t), rows.x.row_bytes(t), row_bytes);
    has_scales = static_cast<bool>(rows.scales);
    if (has_scales) std::copy_n(rows.scales.host(), rows.x.rows, scales_.begin() + next);
    next += rows.x.rows;
  }
  MatmulRows all{device_tokens_.take(tokens_.top(next))};
  if (has_scales) {
    const ConstMatrixView taken =
        device_scales_.take({reinterpret_cast<const std::byte*>(scales_.data()), DType::kF32, next, 1, 1});
    all.scales = {reinterpret_cast<const float*>(taken.data), taken.space};
  }
  return all;
}

std::vector<std::span<const std::byte>> MergedReplyWriter::write(std::span<const Part> parts) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t layer = parts.front().request->header.layer;
  std::vector<int32_t> first_token;  // of each part
  int32_t num_tokens = 0;
  for (const Part& part : parts) {
    first_token.push_back(num_tokens);
    num_tokens += part.request->header.num_tokens;
  }
  const std::vector<Rows> sorted = sort_by_expert(parts);
  std::vector<const PackedMatrix*> gate_up, down;
  std::vector<int32_t> counts, row_token;
  int32_t before = -1;
  for (const Rows& rows : sorted) {
    const Part& part = parts[rows.part];
    if (rows.expert.value != before) {
      const LayerExperts experts = part.bank->layer(layer);
      gate_up.push_back(experts.gate_up[static_cast<std::size_t>(rows.local)]);
      down.push_back(experts.down[static_cast<std::size_t>(rows.local)]);
      counts.push_back(0);
      before = rows.expert.value;
    }
    counts.back() += static_cast<int32_t>(rows.count);
    for (int64_t i = 0; i < rows.count; ++i)
      row_token.push_back(first_token[rows.part] + part.request->row_token[static_cast<std::size_t>(rows.first + i)]);
  }
  const MatrixView out = out_.top(std::ssize(row_token));
  ffn_.run({.gate_up = gate_up, .down = down},
           {.tokens = gather_tokens(parts), .row_token = row_token, .expert_counts = counts}, device_out_.place_for(out));
  device_out_.give(out);
  const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - start;

  std::vector<MatrixView> replies;
  std::vector<std::span<const std::byte>> written;
  for (const Part& part : parts) {
    WireHeader header = reply_header(part.request->header, *part.shape);
    header.flags = kMerged;
    header.compute_ns = time.count();
    replies.push_back(lay_out_reply(header, part.reply));
    write_header(header, part.reply);
    written.push_back(part.reply.first(static_cast<std::size_t>(reply_bytes(header))));
  }
  const auto row_bytes = static_cast<std::size_t>(hidden_dim_ * dtype_bytes(options_.dtype));
  int64_t next = 0;
  for (const Rows& rows : sorted) {
    for (int64_t i = 0; i < rows.count; ++i)
      std::memcpy(replies[rows.part].row_bytes(rows.first + i), out.row_bytes(next++), row_bytes);
  }
  return written;
}

}  // namespace ferry
