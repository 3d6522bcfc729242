#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "moe/combine_mode.h"

// What travels between a source of tokens (a coordinator) and an expert worker: one message each way per worker and layer.
//
//   request   WireHeader | expert_counts i32 [num_local_experts] | row_token i32 [num_rows] |
//             scales f32 [num_tokens], of codes | row_weights f32 [num_rows], of a fast combine | pad to 64 |
//             tokens [num_tokens, hidden_dim] T, or codes i8 [num_tokens, quantized_cols(hidden_dim)]
//   reply     WireHeader | pad to 64 | rows T [num_rows, hidden_dim], in the order of row_token; of a fast combine [num_tokens,
//             hidden_dim], in the order of tokens
//
// All integers are little-endian, as every supported host is. Both ends know by themselves which experts the worker holds,
// under which epoch of the expert map, and how wide rows are: each writes what it holds and checks what the other wrote against
// it. A message that does not agree, or is shorter or longer than its header says, is Error{kInternal}.

namespace ferry {

constexpr uint32_t kWireMagic = 0x59525246;  // "FRRY"
constexpr uint16_t kWireVersion = 3;         // of all messages between ranks; changes with their layout
constexpr int kRequestTag = 1;
constexpr int kReplyTag = 2;
constexpr int kNoticeTag = 5;           // of what a worker says without being asked
constexpr int64_t kWireAlignment = 64;  // bytes; rows start at a cache line

enum class WireKind : uint16_t {
  kRows = 1,
  kKeepAlive = 2,
  kShutDown = 3,
  kReply = 4,
  kTrace = 5,
  kTraceReply = 6,
  kAssign = 7,
  kPrepared = 8,
  kLeave = 9
};

struct WireHeader {
  uint32_t magic = kWireMagic;
  uint16_t version = kWireVersion;
  WireKind kind = WireKind::kRows;
  uint32_t map_epoch = 0;  // of the sender's placement
  uint16_t source = 0;     // of tokens: which coordinator's they are
  uint8_t attempt = 0;     // how many ranks were asked for these rows before
  uint8_t flags = 0;       // below
  uint64_t sequence = 0;   // of a request among those of its link; a reply has that of its request
  int64_t step = 0;
  int32_t layer = 0;
  int32_t num_tokens = 0;
  int32_t num_rows = 0;
  int32_t num_local_experts = 0;
  int32_t hidden_dim = 0;
  DType dtype = DType::kF32;        // T, of the rows that come back
  DType token_dtype = DType::kF32;  // of the tokens that go out: T, or i8 where the experts are quantised
  CombineMode combine = CombineMode::kExact;
  uint8_t micro_batch = 0;  // of the layer in this step, < kMaxMicroBatches
  int64_t compute_ns = 0;   // of a reply: how long the worker computed
};
static_assert(sizeof(WireHeader) == 64);

// Flags.
constexpr uint8_t kRanksLost = 1;      // of a goodbye: whoever leaves should wait for no other rank
constexpr uint8_t kCannotPrepare = 2;  // of a preparation: what follows is why
constexpr uint8_t kMerged = 4;         // of a reply: it was computed together with another source's
constexpr uint8_t kDetailed = 8;       // of rows: the source records their step in detail, and so should the worker

constexpr std::size_t kMaxReasonBytes = 512;  // of why somebody cannot, or has to go

/// What a worker holds and was sized for.
struct WorkerShape {
  uint32_t map_epoch = 0;
  std::vector<int32_t> num_local_experts;  // [num_layers]
  int64_t hidden_dim = 0;
  DType dtype = DType::kF32;
  DType token_dtype = DType::kF32;
  CombineMode combine = CombineMode::kExact;
  int64_t max_tokens = 0;      // of a request
  int64_t rows_per_token = 0;  // at most: experts of one token that can be here

  int64_t num_layers() const { return static_cast<int64_t>(num_local_experts.size()); }
  int64_t max_local_experts() const;
};

// Within these, which every WorkerShape keeps, no size of a message overflows.
constexpr int64_t kMaxMicroBatches = 128;  // of a layer in a step: one or two, of an MTP layer one for each of its passes
constexpr int64_t kMaxWireTokens = int64_t{1} << 20;
constexpr int64_t kMaxWireRows = int64_t{1} << 30;
constexpr int64_t kMaxWireExperts = int64_t{1} << 20;
constexpr int64_t kMaxWireHidden = int64_t{1} << 20;

/// Throws Error{kInvalidArgument} for a shape beyond the limits.
void require_wire_limits(const WorkerShape& shape);

/// Rows of the reply to a request with these counts.
int64_t num_reply_rows(const WireHeader& header);

/// Bytes of a request or a reply with the header's counts, which are within the limits.
int64_t request_bytes(const WireHeader& header);
int64_t reply_bytes(const WireHeader& header);
/// Bytes of the largest request and reply of a worker.
int64_t max_request_bytes(const WorkerShape& shape);
int64_t max_reply_bytes(const WorkerShape& shape);

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

void write_header(const WireHeader& header, std::span<std::byte> message);
/// Of a reply that is ready: its worker computed for so much longer than it says.
void add_compute_time(std::span<std::byte> reply, std::chrono::nanoseconds time);

/// The header of a message as it was received: long enough for one, of this protocol's version, of a known kind and from a
/// sender whose expert map has `map_epoch`. A keep-alive or a wish to leave is nothing but its header; behind that
/// of a goodbye may be a reason of up to kMaxReasonBytes.
WireHeader read_header(std::span<const std::byte> message, uint32_t map_epoch);

/// The same from a sender of whatever epoch.
WireHeader read_header_of_any_epoch(std::span<const std::byte> message);

/// Views a received request. A worker trusts nothing: every field is checked against what it holds, counts and indices against
/// each other, and the length against them. Rows of one expert are of different tokens, in their order. Values of tokens,
/// scales and weights may be anything: they end in the rows of their own token. `message` is 64-byte aligned.
RequestView parse_request(std::span<const std::byte> message, const WorkerShape& shape);

/// Checks what `worker` answered to `request` and returns the reply's header. The Error names the rank.
WireHeader parse_reply(std::span<const std::byte> message, const WireHeader& request, Rank worker);

}  // namespace ferry
