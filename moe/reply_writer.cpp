#include "moe/reply_writer.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "profiler/span.h"
#include "runtime/base/error.h"

namespace ferry {

ReplyWriter::ReplyWriter(const ExpertBank& bank, MatmulBackend& matmul, KernelContext context, const Options& options)
    : bank_(bank),
      context_(context),
      options_(options),
      slots_per_token_(std::min(options.top_k, bank.num_local_experts())),
      ffn_(bank, matmul, context, options.dtype, options.max_tokens * slots_per_token_) {
  if (options.combine == CombineMode::kExact) return;
  const int64_t max_rows = options.max_tokens * slots_per_token_;
  rows_ = Matrix(options.dtype, max_rows, bank.dims().hidden_dim);
  slot_rows_.resize(static_cast<std::size_t>(max_rows));
  slot_weights_.resize(static_cast<std::size_t>(max_rows));
  num_slots_.resize(static_cast<std::size_t>(options.max_tokens));
}

WireHeader ReplyWriter::largest_header() const {
  return {.dtype = static_cast<uint32_t>(options_.dtype),
          .num_tokens = static_cast<int32_t>(options_.max_tokens),
          .num_rows = static_cast<int32_t>(options_.max_tokens * slots_per_token_),
          .num_local_experts = static_cast<int32_t>(bank_.num_local_experts()),
          .hidden_dim = static_cast<int32_t>(bank_.dims().hidden_dim),
          .token_dtype = static_cast<uint32_t>(bank_.row_dtype(options_.dtype)),
          .combine = options_.combine};
}

int64_t ReplyWriter::max_request_bytes() const { return request_bytes(largest_header()); }
int64_t ReplyWriter::max_reply_bytes() const { return reply_bytes(largest_header()); }

std::span<const std::byte> ReplyWriter::write(const RequestView& request, std::span<std::byte> reply) {
  const auto start = std::chrono::steady_clock::now();
  WireHeader header = request.header;
  if (header.combine != options_.combine)
    throw Error(ErrorCode::kInternal, "an expert request combines otherwise than this rank");
  if (header.num_tokens > options_.max_tokens)
    throw Error(ErrorCode::kInternal, "an expert request has " + std::to_string(header.num_tokens) +
                                          " tokens; allowed: up to " + std::to_string(options_.max_tokens));
  header.kind = WireKind::kReply;
  const MatrixView out = lay_out_reply(header, reply);
  const ExpertRows rows{.tokens = request.tokens, .row_token = request.row_token, .expert_counts = request.expert_counts};
  if (options_.combine == CombineMode::kExact) {
    ffn_.run(header.layer, rows, out);
  } else {
    const MatrixView by_expert = rows_.top(header.num_rows);
    ffn_.run(header.layer, rows, by_expert);
    add_up(request, by_expert, out);
  }
  header.compute_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
  write_header(header, reply);
  return reply.first(static_cast<std::size_t>(reply_bytes(header)));
}

/// Sums the rows of each token, in the order of experts.
void ReplyWriter::add_up(const RequestView& request, ConstMatrixView rows, MatrixView out) {
  const auto num_tokens = static_cast<std::size_t>(request.header.num_tokens);
  const std::span<const std::byte*> slot_rows =
      std::span(slot_rows_).first(num_tokens * static_cast<std::size_t>(slots_per_token_));
  std::ranges::fill(slot_rows, nullptr);
  std::fill_n(num_slots_.begin(), num_tokens, 0);
  for (std::size_t r = 0; r < request.row_token.size(); ++r) {
    const auto token = static_cast<std::size_t>(request.row_token[r]);
    if (num_slots_[token] == slots_per_token_) {
      throw Error(ErrorCode::kInternal, "an expert request has more than " + std::to_string(slots_per_token_) +
                                            " rows of token " + std::to_string(token));
    }
    const std::size_t slot = token * static_cast<std::size_t>(slots_per_token_) + static_cast<std::size_t>(num_slots_[token]++);
    slot_rows[slot] = rows.row_bytes(static_cast<int64_t>(r));
    slot_weights_[slot] = request.row_weights[r];
  }
  combine(context_, {.slot_rows = slot_rows, .slot_weights = slot_weights_.data(), .num_slots = slots_per_token_, .out = out});
}

}  // namespace ferry
