#include "moe/reply_writer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "profiler/span.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

std::vector<int32_t> num_local_experts(const ExpertBank& bank) {
  std::vector<int32_t> num_local;
  for (int64_t l = 0; l < bank.num_layers(); ++l) num_local.push_back(static_cast<int32_t>(bank.num_local_experts(l)));
  return num_local;
}

WorkerShape shape_of(const ExpertBank& bank, const ReplyWriter::Options& options) {
  const int64_t most = options.num_experts > 0 ? options.num_experts : bank.num_local_experts();
  WorkerShape shape{.map_epoch = options.map_epoch,
                    .num_local_experts = num_local_experts(bank),
                    .hidden_dim = bank.dims().hidden_dim,
                    .dtype = options.dtype,
                    .token_dtype = bank.row_dtype(options.dtype),
                    .combine = options.combine,
                    .max_tokens = options.max_tokens,
                    .rows_per_token = std::min(options.top_k, most)};
  require_wire_limits(shape);
  return shape;
}

}  // namespace

// What this rank holds, and of the request what it is an answer to.
WireHeader reply_header(const WireHeader& request, const WorkerShape& shape) {
  return {.kind = WireKind::kReply,
          .map_epoch = shape.map_epoch,
          .source = request.source,
          .attempt = request.attempt,
          .sequence = request.sequence,
          .step = request.step,
          .layer = request.layer,
          .num_tokens = request.num_tokens,
          .num_rows = request.num_rows,
          .num_local_experts = shape.num_local_experts[static_cast<std::size_t>(request.layer)],
          .hidden_dim = static_cast<int32_t>(shape.hidden_dim),
          .dtype = shape.dtype,
          .token_dtype = shape.token_dtype,
          .combine = shape.combine,
          .micro_batch = request.micro_batch};
}

ReplyWriter::ReplyWriter(const ExpertBank& bank, Stream& stream, const Options& options)
    : bank_(&bank),
      stream_(stream),
      shape_(shape_of(bank, options)),
      ffn_(bank.dims(), bank.type(), stream, options.dtype, shape_.max_tokens * shape_.rows_per_token),
      tokens_(stream, shape_.token_dtype, shape_.max_tokens, row_cols(shape_.token_dtype, shape_.hidden_dim)),
      scales_(stream, DType::kF32, shape_.max_tokens, 1),
      out_(stream, shape_.dtype, shape_.max_tokens * shape_.rows_per_token, shape_.hidden_dim) {
  if (options.combine == CombineMode::kExact) return;
  rows_ = Matrix(stream.memory(), options.dtype, shape_.max_tokens * shape_.rows_per_token, shape_.hidden_dim);
  adder_.emplace(stream, shape_.max_tokens, shape_.rows_per_token);
}

void ReplyWriter::hold(uint32_t epoch, const ExpertBank& bank) {
  bank_ = &bank;
  shape_.map_epoch = epoch;
  shape_.num_local_experts = num_local_experts(bank);
}

std::span<const std::byte> ReplyWriter::write(const RequestView& request, std::span<std::byte> reply) {
  const auto start = std::chrono::steady_clock::now();
  WireHeader header = reply_header(request.header, shape_);
  const MatrixView out = lay_out_reply(header, reply);
  const ExpertRows rows = take(request);
  const MatrixView results = out_.place_for(out);
  if (shape_.combine == CombineMode::kExact) {
    ffn_.run(bank_->layer(header.layer), rows, results);
  } else {
    const MatrixView by_expert = rows_.top(header.num_rows);
    ffn_.run(bank_->layer(header.layer), rows, by_expert);
    adder_->add_up(request.row_token, request.row_weights, by_expert, results);
  }
  out_.give(out);
  header.compute_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
  write_header(header, reply);
  return reply.first(static_cast<std::size_t>(reply_bytes(header)));
}

/// The request's rows where the backend can read them.
ExpertRows ReplyWriter::take(const RequestView& request) {
  MatmulRows tokens{tokens_.take(request.tokens.x)};
  if (request.tokens.scales) {
    const auto* scales = reinterpret_cast<const std::byte*>(request.tokens.scales.host());
    const ConstMatrixView taken = scales_.take({scales, DType::kF32, request.tokens.x.rows, 1, 1});
    tokens.scales = {reinterpret_cast<const float*>(taken.data), taken.space};
  }
  return {.tokens = tokens, .row_token = request.row_token, .expert_counts = request.expert_counts};
}

}  // namespace ferry
