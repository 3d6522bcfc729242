#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/matmul.h"
#include "moe/combine_mode.h"

// What travels between a source of tokens (a coordinator) and an expert worker: one message each way per worker and layer.
//
//   request   WireHeader | expert_counts i32 [num_local_experts] | row_token i32 [num_rows] | scales f32 [num_tokens], of codes |
//             row_weights f32 [num_rows], of a fast combine | pad to 64 |
//             tokens [num_tokens, hidden_dim] T, or codes i8 [num_tokens, quantized_cols(hidden_dim)]
//   reply     WireHeader | pad to 64 | rows T [num_rows, hidden_dim], in the order of row_token; of a fast combine [num_tokens,
//             hidden_dim], in the order of tokens
//
// All integers are little-endian, as every supported host is.

namespace ferry {

constexpr uint32_t kWireMagic = 0x59525246;  // "FRRY"
constexpr int kRequestTag = 1;
constexpr int kReplyTag = 2;
constexpr int64_t kWireAlignment = 64;  // bytes; rows start at a cache line

enum class WireKind : uint32_t { kRows = 1, kKeepAlive = 2, kShutDown = 3, kReply = 4, kTrace = 5, kTraceReply = 6 };

struct WireHeader {
  uint32_t magic = kWireMagic;
  WireKind kind = WireKind::kRows;
  uint32_t map_epoch = 0;
  uint32_t dtype = 0;  // DType T of the rows that come back
  int64_t step = 0;
  int32_t layer = 0;
  int32_t num_tokens = 0;
  int32_t num_rows = 0;
  int32_t num_local_experts = 0;
  int32_t hidden_dim = 0;
  uint32_t token_dtype = 0;  // DType of the tokens that go out: T, or i8 where the experts are quantised
  int64_t compute_ns = 0;    // of a reply: how long the worker computed
  CombineMode combine = CombineMode::kExact;
  int32_t micro_batch = 0;  // of the layer: 0 or 1
};
static_assert(sizeof(WireHeader) == 64);

/// Rows of the reply to a request with these counts.
int64_t num_reply_rows(const WireHeader& header);

/// Bytes of a request or a reply with the header's counts.
int64_t request_bytes(const WireHeader& header);
int64_t reply_bytes(const WireHeader& header);

/// The parts of a request inside its bytes.
struct RequestView {
  WireHeader header;
  std::span<const int32_t> expert_counts;
  std::span<const int32_t> row_token;
  std::span<const float> row_weights;  // empty unless the combine is fast
  MatmulRows tokens;
};

/// Where the parts of a request with this header go.
struct RequestParts {
  int32_t* expert_counts;
  int32_t* row_token;
  float* scales;       // [num_tokens], null unless tokens are codes
  float* row_weights;  // [num_rows], null unless the combine is fast
  MatrixView tokens;
};
RequestParts lay_out_request(const WireHeader& header, std::span<std::byte> message);
MatrixView lay_out_reply(const WireHeader& header, std::span<std::byte> message);

WireHeader read_header(std::span<const std::byte> message);
void write_header(const WireHeader& header, std::span<std::byte> message);

/// Views a received request. A worker trusts nothing: counts, indices and sizes are checked against each other and against
/// the buffer, and a mismatch throws Error{kInternal}. `message` is 64-byte aligned.
RequestView parse_request(std::span<const std::byte> message);

}  // namespace ferry
