#include "moe/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr WireHeader kHeader{.map_epoch = 3,
                             .step = 9,
                             .layer = 2,
                             .num_tokens = 2,
                             .num_rows = 3,
                             .num_local_experts = 2,
                             .hidden_dim = 5,
                             .dtype = DType::kBF16,
                             .token_dtype = DType::kBF16};

/// A worker to which a request with this header may come.
WorkerShape shape_for(const WireHeader& header) {
  return {.map_epoch = 3,
          .num_local_experts = {2, 2, 2, 2},
          .hidden_dim = 5,
          .dtype = DType::kBF16,
          .token_dtype = header.token_dtype,
          .combine = header.combine,
          .max_tokens = 4,
          .rows_per_token = 2};
}

/// A request's parts: one row of the first expert for token 1, two of the second for tokens 0 and 1.
RequestParts lay_out_rows(const WireHeader& header, std::span<std::byte> message) {
  const RequestParts parts = lay_out_request(header, message);
  const int32_t counts[] = {1, 2}, rows[] = {1, 0, 1};
  std::copy(std::begin(counts), std::end(counts), parts.expert_counts);
  std::copy(std::begin(rows), std::end(rows), parts.row_token);
  return parts;
}

AlignedBuffer sample_request(const WireHeader& header = kHeader) {
  AlignedBuffer buffer(static_cast<std::size_t>(request_bytes(kHeader)));
  const std::span<std::byte> message(buffer.data(), buffer.size());
  const RequestParts parts = lay_out_rows(kHeader, message);
  for (int64_t i = 0; i < 10; ++i) parts.tokens.row<bfloat16>(0)[i] = to_bfloat16(static_cast<float>(i));
  write_header(header, message);
  return buffer;
}

TEST(Wire, RequestSurvivesTheTrip) {
  const AlignedBuffer buffer = sample_request();
  const RequestView view = parse_request({buffer.data(), buffer.size()}, shape_for(kHeader));
  EXPECT_EQ(view.header.step, 9);
  EXPECT_EQ(std::vector<int32_t>(view.expert_counts.begin(), view.expert_counts.end()), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(std::vector<int32_t>(view.row_token.begin(), view.row_token.end()), (std::vector<int32_t>{1, 0, 1}));
  EXPECT_EQ(to_float(view.tokens.x.row<bfloat16>(1)[4]), 9.0F);
  EXPECT_FALSE(view.tokens.scales);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.tokens.x.data) % 64, 0U);
}

TEST(Wire, CodesTravelWithTheirScales) {
  WireHeader header = kHeader;
  header.token_dtype = DType::kI8;
  AlignedBuffer buffer(static_cast<std::size_t>(request_bytes(header)));
  const std::span<std::byte> message(buffer.data(), buffer.size());
  const RequestParts parts = lay_out_rows(header, message);
  for (int64_t t = 0; t < 2; ++t) {
    parts.scales[t] = 0.5F + static_cast<float>(t);
    for (int64_t i = 0; i < 5; ++i) parts.tokens.row<int8_t>(t)[i] = static_cast<int8_t>(10 * t - i);
  }
  write_header(header, message);
  const RequestView view = parse_request(message, shape_for(header));
  EXPECT_EQ(view.tokens.x.cols, 64) << "rows of codes are padded";
  EXPECT_EQ(view.tokens.x.row<int8_t>(1)[4], 6);
  EXPECT_EQ(view.tokens.x.row<int8_t>(0)[4], -4);
  EXPECT_EQ(view.tokens.scales.host()[1], 1.5F);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.tokens.x.data) % 64, 0U);
}

TEST(Wire, AFastCombineCarriesWeightsAndAnswersByToken) {
  WireHeader header = kHeader;
  header.combine = CombineMode::kFast;
  EXPECT_EQ(num_reply_rows(kHeader), 3);
  EXPECT_EQ(num_reply_rows(header), 2);
  EXPECT_LT(reply_bytes(header), reply_bytes(kHeader));
  header.token_dtype = DType::kI8;
  AlignedBuffer buffer(static_cast<std::size_t>(request_bytes(header)));
  const std::span<std::byte> message(buffer.data(), buffer.size());
  const RequestParts parts = lay_out_rows(header, message);
  for (int64_t t = 0; t < 2; ++t) parts.scales[t] = 0.5F;
  for (int64_t r = 0; r < 3; ++r) parts.row_weights[r] = static_cast<float>(r) + 0.25F;
  write_header(header, message);
  const RequestView view = parse_request(message, shape_for(header));
  EXPECT_EQ(std::vector<float>(view.row_weights.begin(), view.row_weights.end()), (std::vector<float>{0.25F, 1.25F, 2.25F}));
  EXPECT_EQ(view.tokens.scales.host()[1], 0.5F);
  EXPECT_EQ(view.row_token[2], 1);
}

TEST(Wire, AReplyMaySayThatItsWorkerTookLonger) {
  std::vector<std::byte> reply(sizeof(WireHeader) + 64, std::byte{7});
  write_header({.kind = WireKind::kReply, .step = 3, .compute_ns = 1000}, reply);
  add_compute_time(reply, std::chrono::microseconds(2));
  WireHeader header;
  std::memcpy(&header, reply.data(), sizeof header);
  EXPECT_EQ(header.compute_ns, 3000);
  EXPECT_EQ(header.step, 3);
  EXPECT_EQ(reply.back(), std::byte{7});
}

TEST(Wire, EmptyPartsAreFine) {
  WireHeader header = kHeader;
  header.num_tokens = header.num_rows = 0;
  AlignedBuffer buffer(static_cast<std::size_t>(request_bytes(header)));
  write_header(header, {buffer.data(), buffer.size()});
  EXPECT_EQ(parse_request({buffer.data(), buffer.size()}, shape_for(kHeader)).tokens.x.rows, 0);
}

void expect_refusal(const std::string& what, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}

TEST(Wire, ARequestThatDisagreesWithTheWorkerIsRefused) {
  constexpr int32_t kHuge = 2147483647;
  const std::vector<std::pair<const char*, std::function<void(WireHeader&)>>> cases = {
      {"mark", [](WireHeader& h) { h.magic = 1; }},
      {"protocol version 1; allowed: 3", [](WireHeader& h) { h.version = 1; }},
      {"kind 77; allowed: 1 to 9", [](WireHeader& h) { h.kind = static_cast<WireKind>(77); }},
      {"kind 4; allowed: 1", [](WireHeader& h) { h.kind = WireKind::kReply; }},
      {"epoch of the expert map 4; allowed: 3", [](WireHeader& h) { h.map_epoch = 4; }},
      {"layer 4; allowed: 0 to 3", [](WireHeader& h) { h.layer = 4; }},
      {"layer -1; allowed: 0 to 3", [](WireHeader& h) { h.layer = -1; }},
      {"experts 3; allowed: 2", [](WireHeader& h) { h.num_local_experts = 3; }},
      {"experts 2147483647; allowed: 2", [](WireHeader& h) { h.num_local_experts = kHuge; }},
      {"width 2147483647; allowed: 5", [](WireHeader& h) { h.hidden_dim = kHuge; }},
      {"dtype 0; allowed: 1", [](WireHeader& h) { h.dtype = DType::kF32; }},
      {"dtype 7; allowed: 1", [](WireHeader& h) { h.dtype = static_cast<DType>(7); }},
      {"dtype of tokens 2; allowed: 1", [](WireHeader& h) { h.token_dtype = DType::kI8; }},
      {"way to combine 1; allowed: 0", [](WireHeader& h) { h.combine = CombineMode::kFast; }},
      {"micro-batch 128; allowed: 0 to 127", [](WireHeader& h) { h.micro_batch = 128; }},
      {"tokens 5; allowed: 0 to 4", [](WireHeader& h) { h.num_tokens = 5; }},
      {"tokens -1; allowed: 0 to 4", [](WireHeader& h) { h.num_tokens = -1; }},
      {"rows 5; allowed: 2 to 4", [](WireHeader& h) { h.num_rows = 5; }},
      {"rows -1; allowed: 2 to 4", [](WireHeader& h) { h.num_rows = -1; }},
      {"bytes 148; allowed: 168", [](WireHeader& h) { h.num_tokens = h.num_rows = 4; }},
  };
  for (const auto& [what, damage] : cases) {
    WireHeader header = kHeader;
    damage(header);
    const AlignedBuffer buffer = sample_request(header);
    expect_refusal(what, [&] { parse_request({buffer.data(), buffer.size()}, shape_for(kHeader)); });
  }
}

TEST(Wire, AMessageIsAsLongAsItsHeaderSays) {
  const AlignedBuffer buffer = sample_request();
  for (std::size_t bytes = 0; bytes < buffer.size(); ++bytes)
    EXPECT_THROW(parse_request({buffer.data(), bytes}, shape_for(kHeader)), Error) << bytes;
  AlignedBuffer longer(buffer.size() + 1);
  std::copy_n(buffer.data(), buffer.size(), longer.data());
  EXPECT_THROW(parse_request({longer.data(), longer.size()}, shape_for(kHeader)), Error);
  std::array<std::byte, sizeof(WireHeader) + kMaxReasonBytes + 1> message{};
  write_header({.kind = WireKind::kKeepAlive, .map_epoch = 3}, message);
  EXPECT_EQ(read_header(std::span(message).first(sizeof(WireHeader)), 3).kind, WireKind::kKeepAlive);
  expect_refusal("bytes 65; allowed: 64", [&] { read_header(std::span(message).first(sizeof(WireHeader) + 1), 3); });
  write_header({.kind = WireKind::kShutDown, .map_epoch = 3}, message);
  const auto longest = std::span(message).first(message.size() - 1);
  EXPECT_EQ(read_header(longest, 3).kind, WireKind::kShutDown) << "with a reason";
  expect_refusal("bytes 577; allowed: 64 to 576", [&] { read_header(message, 3); });
}

TEST(Wire, RowsAreOfTokensThatWereSentEachOncePerExpert) {
  struct Case {
    const char* what;
    std::array<int32_t, 2> counts;
    std::array<int32_t, 3> rows;
  };
  for (const Case& c : {Case{"sum of the experts' rows 2; allowed: 3", {1, 1}, {0, 0, 1}},
                        Case{"rows of an expert 3; allowed: 0 to 2", {1, 3}, {0, 0, 1}},
                        Case{"rows of an expert -1; allowed: 0 to 3", {-1, 3}, {0, 0, 1}},
                        Case{"token of a row 2; allowed: 1 to 1", {1, 2}, {0, 0, 2}},
                        Case{"token of a row -1; allowed: 0 to 1", {1, 2}, {-1, 0, 1}},
                        Case{"token of a row 0; allowed: 1 to 1", {1, 2}, {1, 0, 0}},
                        Case{"token of a row 0; allowed: 2 to 1", {1, 2}, {1, 1, 0}}}) {
    AlignedBuffer buffer = sample_request();
    const RequestParts parts = lay_out_request(kHeader, {buffer.data(), buffer.size()});
    std::copy(c.counts.begin(), c.counts.end(), parts.expert_counts);
    std::copy(c.rows.begin(), c.rows.end(), parts.row_token);
    expect_refusal(c.what, [&] { parse_request({buffer.data(), buffer.size()}, shape_for(kHeader)); });
  }
}

TEST(Wire, TheLargestMessageOfAllHasASize) {
  const WorkerShape largest{.num_local_experts = {kMaxWireExperts},
                            .hidden_dim = kMaxWireHidden,
                            .max_tokens = kMaxWireTokens,
                            .rows_per_token = kMaxWireRows / kMaxWireTokens};
  require_wire_limits(largest);
  EXPECT_GT(max_request_bytes(largest), kMaxWireTokens * kMaxWireHidden * 4);
  EXPECT_EQ(max_reply_bytes(largest), kMaxWireRows * kMaxWireHidden * 4 + kWireAlignment);
}

}  // namespace
}  // namespace ferry
