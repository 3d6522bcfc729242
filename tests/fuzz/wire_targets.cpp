#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "moe/assignment.h"
#include "moe/wire.h"
#include "profiler/capture.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/check.h"
#include "runtime/cluster/handshake.h"
#include "runtime/options/options.h"
#include "runtime/trace/trace_wire.h"
#include "tests/fuzz/targets.h"

// What comes from other ranks, from a capture's folder and from the command line.

namespace ferry::fuzz {

void parse_request_message(Input input) {
  const WorkerShape shape{.map_epoch = 1,
                          .num_local_experts = {2, 2, 2, 2},
                          .hidden_dim = 5,
                          .dtype = DType::kBF16,
                          .token_dtype = DType::kI8,
                          .combine = CombineMode::kFast,
                          .max_tokens = 64,
                          .rows_per_token = 2};
  AlignedBuffer message(input.size());
  if (!input.empty()) std::memcpy(message.data(), input.data(), input.size());
  const RequestView view = parse_request({message.data(), message.size()}, shape);
  int64_t num_rows = 0;
  for (const int32_t count : view.expert_counts) num_rows += count;
  FERRY_CHECK_EQ(num_rows, static_cast<int64_t>(view.row_token.size()));
  for (const int32_t token : view.row_token) FERRY_CHECK(token >= 0 && token < view.header.num_tokens);
  FERRY_CHECK_LE(view.tokens.x.rows * view.tokens.x.cols, static_cast<int64_t>(input.size()));
  FERRY_CHECK_LE(reply_bytes(view.header), max_reply_bytes(shape));
}

/// Answers to a request of rows.
void parse_reply_message(Input input) {
  static constexpr WireHeader kRequest{.map_epoch = 1,
                                       .step = 7,
                                       .layer = 2,
                                       .num_tokens = 2,
                                       .num_rows = 3,
                                       .num_local_experts = 2,
                                       .hidden_dim = 5,
                                       .dtype = DType::kBF16,
                                       .token_dtype = DType::kBF16};
  const WireHeader reply = parse_reply(std::as_bytes(input), kRequest, Rank{1});
  FERRY_CHECK_EQ(reply_bytes(reply), static_cast<int64_t>(input.size()));
  FERRY_CHECK_EQ(num_reply_rows(reply), num_reply_rows(kRequest));
}

/// What a coordinator tells a worker to hold, or what the worker says has become of it: each written again is the same bytes.
void read_assignment_message(Input input) {
  constexpr int64_t kNumLayers = 3, kNumExperts = 4;
  const auto bytes = std::as_bytes(input);
  const auto is_same_behind_the_header = [&](const std::vector<std::byte>& written) {
    return std::ranges::equal(std::span(written).subspan(sizeof(WireHeader)), bytes.subspan(sizeof(WireHeader)));
  };
  if (read_header_of_any_epoch(bytes).kind == WireKind::kPrepared) {
    const Preparation preparation = decode_preparation(bytes);
    FERRY_CHECK(preparation.complaint.empty() || preparation.canaries.empty());
    FERRY_CHECK_LE(preparation.complaint.size(), kMaxReasonBytes);
    const bool is_told = bytes.size() > sizeof(WireHeader) || preparation.complaint.empty();  // a reason, if it has none
    FERRY_CHECK(!is_told || is_same_behind_the_header(encode_preparation(preparation)));
  } else {
    const Assignment assignment = decode_assignment(bytes, kNumLayers, kNumExperts);
    FERRY_CHECK_LE(static_cast<int64_t>(bytes.size()), max_assignment_bytes(kNumLayers, kNumExperts));
    FERRY_CHECK(is_same_behind_the_header(encode_assignment(assignment)));
  }
}

void parse_handshake(Input input) {
  const HandshakeReport report = decode_report(std::as_bytes(input), Rank{1});
  const std::vector<std::byte> bytes = encode_report(report);
  FERRY_CHECK(bytes.size() == input.size() || report.complaint.has_value());  // an Error's text is made one line
}

/// A trace command, or a trace reply to a command that fetches.
void parse_trace_message(Input input) {
  const auto bytes = std::as_bytes(input);
  TraceCommand fetch{.op = TraceCommand::Op::kFetch, .number = 1};
  fetch.header.map_epoch = 1;
  if (bytes.size() <= sizeof(TraceCommand)) {
    parse_trace_command(bytes);
  } else {
    FERRY_CHECK_EQ(static_cast<int64_t>(sizeof(TraceReply)) + parse_trace_reply(bytes, fetch, Rank{1}).num_bytes,
                   static_cast<int64_t>(bytes.size()));
  }
}

void decode_capture(Input input) {
  const RankCapture capture = decode_rank_capture(std::as_bytes(input), "input");
  const std::vector<std::byte> bytes = encode_rank_capture(capture);
  FERRY_CHECK(encode_rank_capture(decode_rank_capture(bytes, "encoded")) == bytes);
}

/// Arguments, each ended by a zero byte.
void parse_command_line(Input input) {
  const std::string text(text_of(input));
  std::vector<const char*> arguments = {"ferry"};
  for (std::size_t begin = 0; begin < text.size() && arguments.size() < 64; begin += std::strlen(text.data() + begin) + 1)
    arguments.push_back(text.data() + begin);
  const ParseResult result = parse_options(static_cast<int>(arguments.size()), arguments.data());
  FERRY_CHECK(result.options.has_value() || !result.message.empty());
}

}  // namespace ferry::fuzz
