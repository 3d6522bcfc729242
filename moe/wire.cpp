#include "moe/wire.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kMaxElementBytes = 4;
static_assert(kMaxWireRows <= std::numeric_limits<int32_t>::max() && kMaxWireTokens <= kMaxWireRows);
static_assert(kMaxWireRows <= std::numeric_limits<int64_t>::max() / 4 / kMaxWireHidden / kMaxElementBytes);

int64_t align(int64_t bytes) { return (bytes + kWireAlignment - 1) / kWireAlignment * kWireAlignment; }

bool sends_codes(const WireHeader& h) { return h.token_dtype == DType::kI8; }
int64_t token_cols(const WireHeader& h) { return row_cols(h.token_dtype, h.hidden_dim); }
int64_t token_bytes(const WireHeader& h) { return token_cols(h) * dtype_bytes(h.token_dtype); }
int64_t row_bytes(const WireHeader& h) { return h.hidden_dim * dtype_bytes(h.dtype); }

bool is_fast(const WireHeader& h) { return h.combine == CombineMode::kFast; }

int64_t num_scales(const WireHeader& h) { return sends_codes(h) ? int64_t{h.num_tokens} : 0; }
int64_t num_weights(const WireHeader& h) { return is_fast(h) ? int64_t{h.num_rows} : 0; }

int64_t request_tokens_offset(const WireHeader& h) {
  const int64_t words = int64_t{h.num_local_experts} + h.num_rows + num_scales(h) + num_weights(h);
  return align(static_cast<int64_t>(sizeof(WireHeader)) + 4 * words);
}

template <class Byte>
auto view_tokens(const WireHeader& h, Byte* message) {
  return BasicMatrixView<std::is_const_v<Byte>>{message + request_tokens_offset(h), h.token_dtype, h.num_tokens, token_cols(h),
                                                token_cols(h)};
}

/// Compares the fields of a received header with what its reader holds. `what` is "expert request", say.
class HeaderCheck {
 public:
  HeaderCheck(const char* what, const WireHeader& header) : what_(what), header_(header) {}

  void equal(const char* field, int64_t got, int64_t expected) const {
    if (got != expected) refuse(field, got, std::to_string(expected));
  }
  void within(const char* field, int64_t got, int64_t least, int64_t most) const {
    if (got < least || got > most) refuse(field, got, std::to_string(least) + " to " + std::to_string(most));
  }

  [[noreturn]] void refuse(const std::string& field, int64_t got, const std::string& allowed) const {
    throw Error(ErrorCode::kInternal, std::string(what_) + " of step " + std::to_string(header_.step) + ", layer " +
                                          std::to_string(header_.layer) + ": " + field + " " + std::to_string(got) +
                                          "; allowed: " + allowed);
  }

 private:
  const char* what_;
  const WireHeader& header_;
};

WireHeader largest_header(const WorkerShape& shape) {
  return {.num_tokens = static_cast<int32_t>(shape.max_tokens),
          .num_rows = static_cast<int32_t>(shape.max_tokens * shape.rows_per_token),
          .num_local_experts = static_cast<int32_t>(shape.max_local_experts()),
          .hidden_dim = static_cast<int32_t>(shape.hidden_dim),
          .dtype = shape.dtype,
          .token_dtype = shape.token_dtype,
          .combine = shape.combine};
}

/// What a message of this kind may have as its flags, beside none.
uint8_t flag_of(WireKind kind) {
  switch (kind) {
    case WireKind::kShutDown: return kRanksLost;
    case WireKind::kPrepared: return kCannotPrepare;
    case WireKind::kReply: return kMerged;
    case WireKind::kRows: return kDetailed;
    default: return 0;
  }
}

/// After this all sizes can be computed, and the layer's experts exist.
void check_against_shape(const HeaderCheck& check, const WireHeader& h, const WorkerShape& shape) {
  check.equal("kind", static_cast<int64_t>(h.kind), static_cast<int64_t>(WireKind::kRows));
  check.within("layer", h.layer, 0, shape.num_layers() - 1);
  check.equal("number of this rank's experts", h.num_local_experts, shape.num_local_experts[static_cast<std::size_t>(h.layer)]);
  check.equal("width", h.hidden_dim, shape.hidden_dim);
  check.equal("dtype", static_cast<int64_t>(h.dtype), static_cast<int64_t>(shape.dtype));
  check.equal("dtype of tokens", static_cast<int64_t>(h.token_dtype), static_cast<int64_t>(shape.token_dtype));
  check.equal("way to combine", static_cast<int64_t>(h.combine), static_cast<int64_t>(shape.combine));
  check.within("micro-batch", h.micro_batch, 0, kMaxMicroBatches - 1);
  check.within("number of tokens", h.num_tokens, 0, shape.max_tokens);
  check.within("number of rows", h.num_rows, h.num_tokens, h.num_tokens * shape.rows_per_token);
}

/// Counts sum to the rows; rows of an expert are of tokens that were sent, each at most once.
void check_rows(const HeaderCheck& check, const RequestView& view) {
  int64_t first = 0;
  const int64_t num_rows = view.header.num_rows;
  for (const int32_t count : view.expert_counts) {
    check.within("rows of an expert", count, 0, num_rows - first);
    int32_t previous = -1;
    for (const int32_t token : view.row_token.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count))) {
      check.within("token of a row", token, int64_t{previous} + 1, view.header.num_tokens - 1);
      previous = token;
    }
    first += count;
  }
  check.equal("sum of the experts' rows", first, num_rows);
}

}  // namespace

int64_t WorkerShape::max_local_experts() const {
  return num_local_experts.empty() ? 0 : *std::ranges::max_element(num_local_experts);
}

void require_wire_limits(const WorkerShape& shape) {
  const auto require = [](const char* what, int64_t value, int64_t most) {
    if (value < 0 || value > most)
      throw_invalid(std::string(what) + " " + std::to_string(value) + "; between ranks up to " + std::to_string(most) +
                    " are allowed");
  };
  require("layers", shape.num_layers(), std::numeric_limits<int32_t>::max());
  require("experts of a rank", shape.max_local_experts(), kMaxWireExperts);
  require("width", shape.hidden_dim, kMaxWireHidden);
  require("tokens of a step", shape.max_tokens, kMaxWireTokens);
  require("experts per token", shape.rows_per_token, kMaxWireExperts);
  require("rows of a step", shape.max_tokens * shape.rows_per_token, kMaxWireRows);
}

int64_t request_bytes(const WireHeader& h) { return request_tokens_offset(h) + h.num_tokens * token_bytes(h); }

int64_t num_reply_rows(const WireHeader& h) { return is_fast(h) ? h.num_tokens : h.num_rows; }

int64_t reply_bytes(const WireHeader& h) { return align(sizeof(WireHeader)) + num_reply_rows(h) * row_bytes(h); }

int64_t max_request_bytes(const WorkerShape& shape) { return request_bytes(largest_header(shape)); }
int64_t max_reply_bytes(const WorkerShape& shape) { return reply_bytes(largest_header(shape)); }

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
  return {message.data() + align(sizeof(WireHeader)), h.dtype, num_reply_rows(h), h.hidden_dim, h.hidden_dim};
}

void write_header(const WireHeader& header, std::span<std::byte> message) {
  FERRY_CHECK_LE(sizeof(WireHeader), message.size());
  std::memcpy(message.data(), &header, sizeof(WireHeader));
}

void add_compute_time(std::span<std::byte> reply, std::chrono::nanoseconds time) {
  WireHeader header;
  FERRY_CHECK_LE(sizeof header, reply.size());
  std::memcpy(&header, reply.data(), sizeof header);
  header.compute_ns += time.count();
  write_header(header, reply);
}

WireHeader read_header_of_any_epoch(std::span<const std::byte> message) {
  if (message.size() < sizeof(WireHeader)) {
    throw Error(ErrorCode::kInternal, "a message between ranks has " + std::to_string(message.size()) +
                                          " bytes; allowed: at least " + std::to_string(sizeof(WireHeader)));
  }
  WireHeader header;
  std::memcpy(&header, message.data(), sizeof(WireHeader));
  if (header.magic != kWireMagic)
    throw Error(ErrorCode::kInternal,
                "a message between ranks does not start with Ferry's mark: do all ranks run the same program?");
  const HeaderCheck check("message", header);
  check.equal("protocol version", header.version, kWireVersion);
  check.within("kind", static_cast<int64_t>(header.kind), static_cast<int64_t>(WireKind::kRows),
               static_cast<int64_t>(WireKind::kLeave));
  if (header.flags != 0) check.equal("flags", header.flags, flag_of(header.kind));
  const auto bytes = static_cast<int64_t>(message.size()), least = static_cast<int64_t>(sizeof(WireHeader));
  if (header.kind == WireKind::kKeepAlive || header.kind == WireKind::kLeave) check.equal("bytes", bytes, least);
  if (header.kind == WireKind::kShutDown) check.within("bytes", bytes, least, least + static_cast<int64_t>(kMaxReasonBytes));
  return header;
}

WireHeader read_header(std::span<const std::byte> message, uint32_t map_epoch) {
  const WireHeader header = read_header_of_any_epoch(message);
  HeaderCheck("message", header).equal("epoch of the expert map", header.map_epoch, map_epoch);
  return header;
}

RequestView parse_request(std::span<const std::byte> message, const WorkerShape& shape) {
  const WireHeader h = read_header(message, shape.map_epoch);
  const HeaderCheck check("expert request", h);
  check_against_shape(check, h, shape);
  check.equal("bytes", static_cast<int64_t>(message.size()), request_bytes(h));
  const auto* counts = reinterpret_cast<const int32_t*>(message.data() + sizeof(WireHeader));
  RequestView view{.header = h,
                   .expert_counts = {counts, static_cast<std::size_t>(h.num_local_experts)},
                   .row_token = {counts + h.num_local_experts, static_cast<std::size_t>(h.num_rows)},
                   .row_weights = {},
                   .tokens = {view_tokens(h, message.data())}};
  const auto* scales = reinterpret_cast<const float*>(counts + h.num_local_experts + h.num_rows);
  if (sends_codes(h)) view.tokens.scales = scales;
  view.row_weights = {scales + num_scales(h), static_cast<std::size_t>(num_weights(h))};
  check_rows(check, view);
  return view;
}

WireHeader parse_reply(std::span<const std::byte> message, const WireHeader& request, Rank worker) try {
  const WireHeader h = read_header(message, request.map_epoch);
  const HeaderCheck check("expert reply", h);
  check.equal("kind", static_cast<int64_t>(h.kind), static_cast<int64_t>(WireKind::kReply));
  check.equal("source", h.source, request.source);
  check.equal("sequence", static_cast<int64_t>(h.sequence), static_cast<int64_t>(request.sequence));
  check.equal("attempt", h.attempt, request.attempt);
  check.equal("step", h.step, request.step);
  check.equal("layer", h.layer, request.layer);
  check.equal("micro-batch", h.micro_batch, request.micro_batch);
  check.equal("number of tokens", h.num_tokens, request.num_tokens);
  check.equal("number of rows", h.num_rows, request.num_rows);
  check.equal("number of experts", h.num_local_experts, request.num_local_experts);
  check.equal("width", h.hidden_dim, request.hidden_dim);
  check.equal("dtype", static_cast<int64_t>(h.dtype), static_cast<int64_t>(request.dtype));
  check.equal("dtype of tokens", static_cast<int64_t>(h.token_dtype), static_cast<int64_t>(request.token_dtype));
  check.equal("way to combine", static_cast<int64_t>(h.combine), static_cast<int64_t>(request.combine));
  check.equal("bytes", static_cast<int64_t>(message.size()), reply_bytes(request));
  return h;
} catch (const Error& error) {
  throw Error(error.code(), "rank " + std::to_string(worker.value) + ": " + error.what());
}

}  // namespace ferry
