#include "moe/wire.h"

#include <cstring>
#include <string>

#include "runtime/base/error.h"

namespace ferry {
namespace {

int64_t align(int64_t bytes) { return (bytes + kWireAlignment - 1) / kWireAlignment * kWireAlignment; }

bool sends_codes(const WireHeader& h) { return static_cast<DType>(h.token_dtype) == DType::kI8; }
int64_t token_cols(const WireHeader& h) { return row_cols(static_cast<DType>(h.token_dtype), h.hidden_dim); }
int64_t token_bytes(const WireHeader& h) { return token_cols(h) * dtype_bytes(static_cast<DType>(h.token_dtype)); }
int64_t row_bytes(const WireHeader& h) { return h.hidden_dim * dtype_bytes(static_cast<DType>(h.dtype)); }

bool is_fast(const WireHeader& h) { return h.combine == CombineMode::kFast; }

int64_t num_scales(const WireHeader& h) { return sends_codes(h) ? int64_t{h.num_tokens} : 0; }
int64_t num_weights(const WireHeader& h) { return is_fast(h) ? int64_t{h.num_rows} : 0; }

int64_t request_tokens_offset(const WireHeader& h) {
  const int64_t words = int64_t{h.num_local_experts} + h.num_rows + num_scales(h) + num_weights(h);
  return align(static_cast<int64_t>(sizeof(WireHeader)) + 4 * words);
}

template <class Byte>
auto view_tokens(const WireHeader& h, Byte* message) {
  return BasicMatrixView<std::is_const_v<Byte>>{message + request_tokens_offset(h), static_cast<DType>(h.token_dtype),
                                                h.num_tokens, token_cols(h), token_cols(h)};
}

void require(bool ok, const WireHeader& h, const char* what) {
  if (ok) return;
  throw Error(ErrorCode::kInternal, std::string("malformed expert request at step ") + std::to_string(h.step) + " layer " +
                                        std::to_string(h.layer) + ": " + what);
}

}  // namespace

int64_t request_bytes(const WireHeader& h) { return request_tokens_offset(h) + h.num_tokens * token_bytes(h); }

int64_t num_reply_rows(const WireHeader& h) { return is_fast(h) ? h.num_tokens : h.num_rows; }

int64_t reply_bytes(const WireHeader& h) { return align(sizeof(WireHeader)) + num_reply_rows(h) * row_bytes(h); }

RequestParts lay_out_request(const WireHeader& h, std::span<std::byte> message) {
  FERRY_CHECK_LE(request_bytes(h), static_cast<int64_t>(message.size()));
  auto* counts = reinterpret_cast<int32_t*>(message.data() + sizeof(WireHeader));
  int32_t* row_token = counts + h.num_local_experts;
  auto* scales = reinterpret_cast<float*>(row_token + h.num_rows);
  return {.expert_counts = counts,
          .row_token = row_token,
          .scales = sends_codes(h) ? scales : nullptr,
          .row_weights = is_fast(h) ? scales + num_scales(h) : nullptr,
          .tokens = view_tokens(h, message.data())};
}

MatrixView lay_out_reply(const WireHeader& h, std::span<std::byte> message) {
  FERRY_CHECK_LE(reply_bytes(h), static_cast<int64_t>(message.size()));
  return {message.data() + align(sizeof(WireHeader)), static_cast<DType>(h.dtype), num_reply_rows(h), h.hidden_dim,
          h.hidden_dim};
}

WireHeader read_header(std::span<const std::byte> message) {
  WireHeader header;
  FERRY_CHECK_LE(sizeof(WireHeader), message.size());
  std::memcpy(&header, message.data(), sizeof(WireHeader));
  if (header.magic != kWireMagic)
    throw Error(ErrorCode::kInternal, "expert message does not start with Ferry's mark: do all ranks run the same program?");
  return header;
}

void write_header(const WireHeader& header, std::span<std::byte> message) {
  FERRY_CHECK_LE(sizeof(WireHeader), message.size());
  std::memcpy(message.data(), &header, sizeof(WireHeader));
}

RequestView parse_request(std::span<const std::byte> message) {
  const WireHeader h = read_header(message);
  require(h.dtype <= static_cast<uint32_t>(DType::kBF16), h, "unknown dtype");
  require(h.token_dtype == h.dtype || sends_codes(h), h, "tokens of a dtype that is neither the run's nor i8");
  require(h.combine <= CombineMode::kFast, h, "unknown way to combine");
  require(h.micro_batch == 0 || h.micro_batch == 1, h, "a micro-batch that is neither the first nor the second");
  require(h.num_tokens >= 0 && h.num_rows >= 0 && h.num_local_experts >= 0 && h.hidden_dim >= 0, h, "negative count");
  require(request_bytes(h) <= static_cast<int64_t>(message.size()), h, "longer than the receive buffer");
  const auto* counts = reinterpret_cast<const int32_t*>(message.data() + sizeof(WireHeader));
  RequestView view{.header = h,
                   .expert_counts = {counts, static_cast<std::size_t>(h.num_local_experts)},
                   .row_token = {counts + h.num_local_experts, static_cast<std::size_t>(h.num_rows)},
                   .row_weights = {},
                   .tokens = {view_tokens(h, message.data())}};
  const auto* scales = reinterpret_cast<const float*>(counts + h.num_local_experts + h.num_rows);
  if (sends_codes(h)) view.tokens.scales = scales;
  view.row_weights = {scales + num_scales(h), static_cast<std::size_t>(num_weights(h))};
  int64_t rows = 0;
  for (const int32_t count : view.expert_counts) {
    require(count >= 0, h, "negative expert count");
    rows += count;
  }
  require(rows == h.num_rows, h, "expert counts do not sum to the rows");
  for (const int32_t token : view.row_token) require(token >= 0 && token < h.num_tokens, h, "row of a token that was not sent");
  return view;
}

}  // namespace ferry
