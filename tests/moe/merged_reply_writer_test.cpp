#include "moe/merged_reply_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "runtime/base/aligned_buffer.h"
#include "tests/moe/moe_ranks.h"

// Rows of several sources that are computed together are the bytes that each source gets alone.

namespace ferry {
namespace {

/// What one source has on a worker: some of the experts, in an order of its own.
struct MergeSource {
  MergeSource(const test::Shape& shape, test::RankParts& parts, const std::vector<LogicalExpertId>& held, int64_t num_tokens,
              uint32_t seed)
      : ids(held),
        map(seed, {{Rank{1}, Rank{2}}}, shape.num_experts, {held, others(shape, held)}),
        bank(test::make_bank(shape, parts.matmul(), map, 0)),
        writer(bank, parts.stream(), options(shape, seed)) {
    const WorkerShape& own = writer.shape();
    const auto num_local = static_cast<int32_t>(ids.size());
    WireHeader header{.map_epoch = own.map_epoch,
                      .source = static_cast<uint16_t>(seed),
                      .sequence = seed,
                      .layer = 1,
                      .num_tokens = static_cast<int32_t>(num_tokens),
                      .num_local_experts = num_local,
                      .hidden_dim = static_cast<int32_t>(own.hidden_dim),
                      .dtype = own.dtype,
                      .token_dtype = own.token_dtype,
                      .combine = own.combine};
    std::vector<int32_t> counts(ids.size()), row_token;
    for (std::size_t e = 0; e < ids.size(); ++e) {
      for (int32_t t = 0; t < num_tokens; ++t) {
        if ((t + static_cast<int32_t>(e) + static_cast<int32_t>(seed)) % 3 == 0) continue;
        ++counts[e];
        row_token.push_back(t);
      }
    }
    header.num_rows = static_cast<int32_t>(row_token.size());
    message = AlignedBuffer(static_cast<std::size_t>(request_bytes(header)));
    reply = AlignedBuffer(static_cast<std::size_t>(max_reply_bytes(own)));
    const RequestParts parts_of = lay_out_request(header, {message.data(), message.size()});
    std::ranges::copy(counts, parts_of.expert_counts);
    std::ranges::copy(row_token, parts_of.row_token);
    const test::Batch batch = test::make_batch(shape, num_tokens, Skew::kUniform);
    const MatmulRows rows = batch.rows();
    for (int64_t t = 0; t < num_tokens; ++t) {
      const int64_t from = (t + seed) % num_tokens;
      std::memcpy(parts_of.tokens.row_bytes(t), rows.x.row_bytes(from),
                  static_cast<std::size_t>(rows.x.cols * dtype_bytes(rows.x.dtype)));
      if (parts_of.scales != nullptr) parts_of.scales[t] = rows.scales.host()[from];
    }
    write_header(header, {message.data(), message.size()});
    request = parse_request({message.data(), message.size()}, own);
  }

  static std::vector<LogicalExpertId> others(const test::Shape& shape, const std::vector<LogicalExpertId>& held) {
    std::vector<LogicalExpertId> rest;
    for (int32_t e = 0; e < shape.num_experts; ++e) {
      if (std::ranges::find(held, LogicalExpertId{e}) == held.end()) rest.push_back({e});
    }
    return rest;
  }
  static ReplyWriter::Options options(const test::Shape& shape, uint32_t epoch) {
    return {.map_epoch = epoch, .max_tokens = 32, .top_k = 8, .num_experts = shape.num_experts, .dtype = shape.dtype};
  }

  std::string rows_of(std::span<const std::byte> bytes) const {
    const WireHeader header = parse_reply(bytes, request.header, Rank{1});
    EXPECT_EQ(header.source, request.header.source);
    return {reinterpret_cast<const char*>(bytes.data()) + 64, bytes.size() - 64};
  }
  std::string alone() { return rows_of(writer.write(request, {reply.data(), reply.size()})); }
  MergedReplyWriter::Part part() {
    return {.request = &request, .shape = &writer.shape(), .ids = ids, .bank = &bank, .reply = {reply.data(), reply.size()}};
  }

  std::vector<LogicalExpertId> ids;
  ExpertMap map;
  ExpertBank bank;
  ReplyWriter writer;
  AlignedBuffer message, reply;
  RequestView request;
};

TEST(MergedReplyWriter, EverySourceGetsTheBytesThatItGetsAlone) {
  for (const bool is_quantized : {false, true}) {
    for (const bool is_apart : {false, true}) {
      const test::Shape shape{.is_quantized = is_quantized, .is_apart = is_apart};
      test::RankParts parts(2, shape);
      MergeSource one(shape, parts, {{5}, {2}, {7}, {0}}, 5, 1), two(shape, parts, {{0}, {1}, {2}, {3}, {5}}, 9, 2),
          three(shape, parts, {{6}}, 1, 4);
      const std::string alone[] = {one.alone(), two.alone(), three.alone()};
      MergedReplyWriter merged({shape.hidden_dim, shape.intermediate_dim}, shape.weights(), parts.stream(),
                               MergeSource::options(shape, 0));
      for (int again = 0; again < 2; ++again) {
        const std::vector<MergedReplyWriter::Part> sources{one.part(), two.part(), three.part()};
        const auto replies = merged.write(sources);
        ASSERT_EQ(replies.size(), 3U);
        EXPECT_TRUE(one.rows_of(replies[0]) == alone[0]);
        EXPECT_TRUE(two.rows_of(replies[1]) == alone[1]);
        EXPECT_TRUE(three.rows_of(replies[2]) == alone[2]);
        EXPECT_EQ(read_header_of_any_epoch(replies[0]).flags, kMerged);
      }
    }
  }
}

}  // namespace
}  // namespace ferry
