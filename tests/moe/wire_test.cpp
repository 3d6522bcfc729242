#include "moe/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr WireHeader kHeader{.map_epoch = 3,
                             .dtype = static_cast<uint32_t>(DType::kBF16),
                             .step = 9,
                             .layer = 2,
                             .num_tokens = 2,
                             .num_rows = 3,
                             .num_local_experts = 2,
                             .hidden_dim = 5,
                             .token_dtype = static_cast<uint32_t>(DType::kBF16)};

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
  const RequestView view = parse_request({buffer.data(), buffer.size()});
  EXPECT_EQ(view.header.step, 9);
  EXPECT_EQ(std::vector<int32_t>(view.expert_counts.begin(), view.expert_counts.end()), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(std::vector<int32_t>(view.row_token.begin(), view.row_token.end()), (std::vector<int32_t>{1, 0, 1}));
  EXPECT_EQ(to_float(view.tokens.x.row<bfloat16>(1)[4]), 9.0F);
  EXPECT_EQ(view.tokens.scales, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.tokens.x.data) % 64, 0U);
}

TEST(Wire, CodesTravelWithTheirScales) {
  WireHeader header = kHeader;
  header.token_dtype = static_cast<uint32_t>(DType::kI8);
  AlignedBuffer buffer(static_cast<std::size_t>(request_bytes(header)));
  const std::span<std::byte> message(buffer.data(), buffer.size());
  const RequestParts parts = lay_out_rows(header, message);
  for (int64_t t = 0; t < 2; ++t) {
    parts.scales[t] = 0.5F + static_cast<float>(t);
    for (int64_t i = 0; i < 5; ++i) parts.tokens.row<int8_t>(t)[i] = static_cast<int8_t>(10 * t - i);
  }
  write_header(header, message);
  const RequestView view = parse_request(message);
  EXPECT_EQ(view.tokens.x.cols, 64) << "rows of codes are padded";
  EXPECT_EQ(view.tokens.x.row<int8_t>(1)[4], 6);
  EXPECT_EQ(view.tokens.x.row<int8_t>(0)[4], -4);
  EXPECT_EQ(view.tokens.scales[1], 1.5F);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.tokens.x.data) % 64, 0U);
}

TEST(Wire, AFastCombineCarriesWeightsAndAnswersByToken) {
  WireHeader header = kHeader;
  header.combine = CombineMode::kFast;
  EXPECT_EQ(num_reply_rows(kHeader), 3);
  EXPECT_EQ(num_reply_rows(header), 2);
  EXPECT_LT(reply_bytes(header), reply_bytes(kHeader));
  header.token_dtype = static_cast<uint32_t>(DType::kI8);
  AlignedBuffer buffer(static_cast<std::size_t>(request_bytes(header)));
  const std::span<std::byte> message(buffer.data(), buffer.size());
  const RequestParts parts = lay_out_rows(header, message);
  for (int64_t t = 0; t < 2; ++t) parts.scales[t] = 0.5F;
  for (int64_t r = 0; r < 3; ++r) parts.row_weights[r] = static_cast<float>(r) + 0.25F;
  write_header(header, message);
  const RequestView view = parse_request(message);
  EXPECT_EQ(std::vector<float>(view.row_weights.begin(), view.row_weights.end()), (std::vector<float>{0.25F, 1.25F, 2.25F}));
  EXPECT_EQ(view.tokens.scales[1], 0.5F);
  EXPECT_EQ(view.row_token[2], 1);
}

TEST(Wire, EmptyPartsAreFine) {
  WireHeader header = kHeader;
  header.num_tokens = header.num_rows = 0;
  AlignedBuffer buffer(static_cast<std::size_t>(request_bytes(header)));
  write_header(header, {buffer.data(), buffer.size()});
  EXPECT_EQ(parse_request({buffer.data(), buffer.size()}).tokens.x.rows, 0);
}

TEST(Wire, MalformedRequestsAreRefused) {
  const std::vector<std::pair<const char*, std::function<void(WireHeader&)>>> cases = {
      {"mark", [](WireHeader& h) { h.magic = 1; }},
      {"dtype", [](WireHeader& h) { h.dtype = 7; }},
      {"neither the run's nor i8", [](WireHeader& h) { h.token_dtype = static_cast<uint32_t>(DType::kF32); }},
      {"unknown way to combine", [](WireHeader& h) { h.combine = static_cast<CombineMode>(2); }},
      {"neither the first nor the second", [](WireHeader& h) { h.micro_batch = 2; }},
      {"negative count", [](WireHeader& h) { h.num_rows = -1; }},
      {"longer than the receive buffer", [](WireHeader& h) { h.num_tokens = 1000; }},
      {"longer than the receive buffer", [](WireHeader& h) { h.hidden_dim = 2147483647; }},
      {"do not sum", [](WireHeader& h) { h.num_rows = 2; }},
      {"not sent", [](WireHeader& h) { h.num_tokens = 1; }},
  };
  for (const auto& [what, damage] : cases) {
    WireHeader header = kHeader;
    damage(header);
    const AlignedBuffer buffer = sample_request(header);
    try {
      parse_request({buffer.data(), buffer.size()});
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace ferry
