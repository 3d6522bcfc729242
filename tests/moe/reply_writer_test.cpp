#include "moe/reply_writer.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "kernels/backend.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr int64_t kHidden = 4, kIntermediate = 2, kTopK = 2;

/// Two experts of ones, one layer, f32.
struct OneRank {
  explicit OneRank(CombineMode combine, int64_t top_k = kTopK)
      : bank(1, 2, {kHidden, kIntermediate}, plain_weights(DType::kF32)),
        writer(pack(), stream, {.map_epoch = 5, .max_tokens = 3, .top_k = top_k, .dtype = DType::kF32, .combine = combine}),
        request(static_cast<std::size_t>(max_request_bytes(writer.shape()))),
        reply(static_cast<std::size_t>(max_reply_bytes(writer.shape()))) {}

  const ExpertBank& pack() {
    Matrix gate_up(DType::kF32, 2 * kIntermediate, kHidden), down(DType::kF32, kHidden, kIntermediate);
    for (Matrix* m : {&gate_up, &down}) std::fill_n(m->view().row<float>(0), m->rows() * m->cols(), 1.0F);
    for (int64_t e = 0; e < 2; ++e)
      bank.set(0, e,
               make_expert(backend.matmul().pack(gate_up.view(), WeightUse::kGated),
                           backend.matmul().pack(down.view(), WeightUse::kPlain)));
    return bank;
  }

  /// Token 0 has both experts, token 1 the second one.
  std::span<const std::byte> answer(CombineMode combine, const std::vector<int32_t>& row_token = {0, 0, 1},
                                    int32_t rows_of_second = 2) {
    const WireHeader header{.map_epoch = 5,
                            .num_tokens = 2,
                            .num_rows = 1 + rows_of_second,
                            .num_local_experts = 2,
                            .hidden_dim = kHidden,
                            .combine = combine};
    const std::span<std::byte> message(request.data(), static_cast<std::size_t>(request_bytes(header)));
    const RequestParts parts = lay_out_request(header, message);
    parts.expert_counts[0] = 1;
    parts.expert_counts[1] = rows_of_second;
    std::copy(row_token.begin(), row_token.end(), parts.row_token);
    std::fill_n(parts.tokens.row<float>(0), kHidden, 1.0F);
    std::fill_n(parts.tokens.row<float>(1), kHidden, 2.0F);
    for (int64_t r = 0; parts.row_weights != nullptr && r < header.num_rows; ++r)
      parts.row_weights[r] = static_cast<float>(1 << r);
    write_header(header, message);
    return writer.write(parse_request(message, writer.shape()), {reply.data(), reply.size()});
  }

  ThreadPool pool{1};
  Backend backend = select_backend("auto", "auto", DType::kF32);
  Stream stream{backend, pool};
  ExpertBank bank;
  ReplyWriter writer;
  AlignedBuffer request, reply;
};

void expect_refusal(const std::function<void()>& call, const char* what) {
  try {
    call();
    ADD_FAILURE() << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}

TEST(ReplyWriter, FastAddsATokensRowsWithTheirWeights) {
  OneRank exact(CombineMode::kExact), fast(CombineMode::kFast);
  const std::span<const std::byte> rows = exact.answer(CombineMode::kExact), sums = fast.answer(CombineMode::kFast);
  EXPECT_EQ(read_header(rows, 5).kind, WireKind::kReply);
  EXPECT_EQ(read_header(sums, 5).kind, WireKind::kReply);
  EXPECT_GE(read_header(sums, 5).compute_ns, 0);
  const MatrixView row = lay_out_reply(read_header(rows, 5), {exact.reply.data(), exact.reply.size()});
  const MatrixView sum = lay_out_reply(read_header(sums, 5), {fast.reply.data(), fast.reply.size()});
  ASSERT_EQ(row.rows, 3);
  ASSERT_EQ(sum.rows, 2);
  EXPECT_EQ(sum.row<float>(0)[0], 1 * row.row<float>(0)[0] + 2 * row.row<float>(1)[0]);
  EXPECT_EQ(sum.row<float>(1)[0], 4 * row.row<float>(2)[0]);
  EXPECT_NE(row.row<float>(2)[0], row.row<float>(1)[0]);
}

TEST(ReplyWriter, RefusesWhatItWasNotMadeFor) {
  OneRank fast(CombineMode::kFast);
  expect_refusal([&] { fast.answer(CombineMode::kExact); }, "way to combine 0; allowed: 1");
  // The second expert's two rows are of one token.
  expect_refusal([&] { fast.answer(CombineMode::kFast, {0, 0, 0}); }, "token of a row 0; allowed: 1 to 1");
}

TEST(ReplyWriter, RefusesMoreRowsOfATokenThanItHasExperts) {
  OneRank fast(CombineMode::kFast, 1);
  expect_refusal([&] { fast.answer(CombineMode::kFast); }, "number of rows 3; allowed: 2 to 2");
  expect_refusal([&] { fast.answer(CombineMode::kFast, {0, 0}, 1); }, "more than 1 rows of token 0");
}

TEST(ReplyWriter, RefusesSizesThatNoMessageHas) {
  WorkerShape shape{.num_local_experts = {2}, .hidden_dim = 4, .max_tokens = 1 << 20, .rows_per_token = 1 << 10};
  require_wire_limits(shape);
  shape.rows_per_token += 1;
  EXPECT_THROW(require_wire_limits(shape), Error);
}

}  // namespace
}  // namespace ferry
