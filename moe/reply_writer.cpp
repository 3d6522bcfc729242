#include "moe/reply_writer.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "profiler/span.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

WorkerShape shape_of(const ExpertBank& bank, const ReplyWriter::Options& options) {
  const WorkerShape shape{.map_epoch = options.map_epoch,
                          .num_layers = bank.num_layers(),
                          .num_local_experts = bank.num_local_experts(),
                          .hidden_dim = bank.dims().hidden_dim,
                          .dtype = options.dtype,
                          .token_dtype = bank.row_dtype(options.dtype),
                          .combine = options.combine,
                          .max_tokens = options.max_tokens,
                          .rows_per_token = std::min(options.top_k, bank.num_local_experts())};
  require_wire_limits(shape);
  return shape;
}

}  // namespace

ReplyWriter::ReplyWriter(const ExpertBank& bank, Stream& stream, const Options& options)
    : stream_(stream),
      shape_(shape_of(bank, options)),
      ffn_(bank, stream, options.dtype, shape_.max_tokens * shape_.rows_per_token),
      tokens_(stream, shape_.token_dtype, shape_.max_tokens, row_cols(shape_.token_dtype, shape_.hidden_dim)),
      scales_(stream, DType::kF32, shape_.max_tokens, 1),
      out_(stream, shape_.dtype, shape_.max_tokens * shape_.rows_per_token, shape_.hidden_dim) {
  if (options.combine == CombineMode::kExact) return;
  const int64_t max_rows = shape_.max_tokens * shape_.rows_per_token;
  rows_ = Matrix(stream.memory(), options.dtype, max_rows, shape_.hidden_dim);
  slot_rows_.resize(static_cast<std::size_t>(max_rows));
  slot_weights_ = Mirror<float>(stream, max_rows);
  num_slots_.resize(static_cast<std::size_t>(options.max_tokens));
}

std::span<const std::byte> ReplyWriter::write(const RequestView& request, std::span<std::byte> reply) {
  const auto start = std::chrono::steady_clock::now();
  // What this rank holds, and of the request what it is an answer to.
  WireHeader header{.kind = WireKind::kReply,
                    .map_epoch = shape_.map_epoch,
                    .step = request.header.step,
                    .layer = request.header.layer,
                    .num_tokens = request.header.num_tokens,
                    .num_rows = request.header.num_rows,
                    .num_local_experts = static_cast<int32_t>(shape_.num_local_experts),
                    .hidden_dim = static_cast<int32_t>(shape_.hidden_dim),
                    .dtype = shape_.dtype,
                    .token_dtype = shape_.token_dtype,
                    .combine = shape_.combine,
                    .micro_batch = request.header.micro_batch};
  const MatrixView out = lay_out_reply(header, reply);
  const ExpertRows rows = take(request);
  const MatrixView results = out_.place_for(out);
  if (shape_.combine == CombineMode::kExact) {
    ffn_.run(header.layer, rows, results);
  } else {
    const MatrixView by_expert = rows_.top(header.num_rows);
    ffn_.run(header.layer, rows, by_expert);
    add_up(request, by_expert, results);
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

/// Sums the rows of each token, in the order of experts.
void ReplyWriter::add_up(const RequestView& request, ConstMatrixView rows, MatrixView out) {
  const auto num_tokens = static_cast<std::size_t>(request.header.num_tokens);
  const std::span<const std::byte*> slot_rows =
      std::span(slot_rows_).first(num_tokens * static_cast<std::size_t>(shape_.rows_per_token));
  std::ranges::fill(slot_rows, nullptr);
  std::fill_n(num_slots_.begin(), num_tokens, 0);
  for (std::size_t r = 0; r < request.row_token.size(); ++r) {
    const auto token = static_cast<std::size_t>(request.row_token[r]);
    if (num_slots_[token] == shape_.rows_per_token) {
      throw Error(ErrorCode::kInternal, "an expert request has more than " + std::to_string(shape_.rows_per_token) +
                                            " rows of token " + std::to_string(token));
    }
    const std::size_t slot =
        token * static_cast<std::size_t>(shape_.rows_per_token) + static_cast<std::size_t>(num_slots_[token]++);
    slot_rows[slot] = rows.row_address(static_cast<int64_t>(r));
    slot_weights_.host()[slot] = request.row_weights[r];
  }
  slot_weights_.send(0, std::ssize(slot_rows));
  combine(stream_,
          {.slot_rows = slot_rows, .slot_weights = slot_weights_.device(), .num_slots = shape_.rows_per_token, .out = out});
}

}  // namespace ferry
