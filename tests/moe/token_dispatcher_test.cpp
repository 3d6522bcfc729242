#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "comm/group_links.h"
#include "comm/local_group.h"
#include "kernels/backend.h"
#include "moe/local_token_dispatcher.h"
#include "moe/remote/remote_token_dispatcher.h"
#include "moe/reply_writer.h"
#include "runtime/base/error.h"
#include "tests/moe/moe_ranks.h"
#include "tests/support/in_good_time.h"

// The in-process dispatcher against a plain sum over experts, and the distributed one against the in-process one, bit for bit.

namespace ferry {
namespace {

using test::Batch;
using test::bytes_of, test::random_matrix;
using test::expect_close;
using test::RankParts;
using test::Shape;

ExpertPlacement placement_of(const Shape& shape, int num_workers) {
  return ExpertPlacement::contiguous(shape.num_layers, shape.num_experts, worker_ranks(num_workers));
}

std::vector<Link*> links_of(GroupLinks& hub, int num_workers) {
  std::vector<Link*> links;
  for (const Rank rank : worker_ranks(num_workers)) links.push_back(&hub.link(rank));
  return links;
}

/// Answers requests as an expert worker does until it is told to leave.
void serve_experts(Group& group, const Shape& shape, int64_t max_tokens, const ExpertMap& map) {
  RankParts parts(1, shape);
  const ExpertBank bank = make_bank(shape, parts.matmul(), map, group.rank().value - 1);
  ReplyWriter replies(bank, parts.stream(),
                      {.map_epoch = map.epoch(),
                       .max_tokens = max_tokens,
                       .top_k = shape.top_k,
                       .dtype = shape.dtype,
                       .combine = shape.combine});
  AlignedBuffer request(static_cast<std::size_t>(max_request_bytes(replies.shape())));
  AlignedBuffer reply(static_cast<std::size_t>(max_reply_bytes(replies.shape())));
  while (true) {
    const auto receive = group.irecv({request.data(), request.size()}, Rank{0}, kRequestTag, Fit::kUpTo);
    const std::size_t bytes = group.wait(*receive, test::in_good_time());
    const std::span<const std::byte> message(request.data(), bytes);
    if (read_header(message, map.epoch()).kind == WireKind::kShutDown) return;
    const auto send =
        group.isend(replies.write(parse_request(message, replies.shape()), {reply.data(), reply.size()}), Rank{0}, kReplyTag);
    group.wait(*send, test::in_good_time());
  }
}

/// Runs `coordinate` on rank 0 with `num_workers` workers on threads.
template <class Fn>
void with_workers(const Shape& shape, int num_workers, int64_t max_tokens, Fn&& coordinate) {
  const auto groups = make_local_groups(num_workers + 1);
  const ExpertMap map = ExpertMap::contiguous(shape.num_experts, worker_ranks(num_workers));
  std::vector<std::thread> workers;
  for (int w = 1; w <= num_workers; ++w)
    workers.emplace_back([&, w] { serve_experts(*groups[static_cast<std::size_t>(w)], shape, max_tokens, map); });
  RankParts parts(2, shape);
  GroupLinks links(*groups[0]);
  RemoteTokenDispatcher dispatcher(links, placement_of(shape, num_workers), links_of(links, num_workers), nullptr,
                                   parts.stream(),
                                   {.hidden_dim = shape.hidden_dim,
                                    .max_tokens = max_tokens,
                                    .top_k = shape.top_k,
                                    .dtype = shape.dtype,
                                    .row_dtype = shape.row_dtype(),
                                    .combine = shape.combine,
                                    .timeout = kTestLimit});
  coordinate(dispatcher, parts.stream());
  dispatcher.shut_down();
  for (std::thread& worker : workers) worker.join();
}

std::string run_with_workers(const Shape& shape, const Batch& batch, int num_workers) {
  const int64_t num_tokens = batch.tokens.rows();
  std::string bytes;
  with_workers(shape, num_workers, num_tokens,
               [&](RemoteTokenDispatcher& dispatcher, Stream& stream) { bytes = run(dispatcher, stream, batch, 1); });
  return bytes;
}

TEST(TokenDispatcher, LocalEqualsThePlainSumOverExperts) {
  const Shape shape{.dtype = DType::kF32};
  const Batch batch = make_batch(shape, 5, Skew::kUniform);
  const std::string got = run_local(shape, batch, 1);
  const auto* values = reinterpret_cast<const float*>(got.data());
  for (int64_t t = 0; t < 5; ++t) {
    for (int64_t h = 0; h < shape.hidden_dim; ++h) {
      double sum = 0;
      for (int64_t k = 0; k < shape.top_k; ++k) {
        const auto slot = static_cast<std::size_t>(t * shape.top_k + k);
        const auto seed = static_cast<uint32_t>(1000 + batch.topk_idx[slot]);
        const Matrix gate_up = random_matrix(DType::kF32, 2 * shape.intermediate_dim, shape.hidden_dim, seed);
        const Matrix down = random_matrix(DType::kF32, shape.hidden_dim, shape.intermediate_dim, seed + 500);
        for (int64_t i = 0; i < shape.intermediate_dim; ++i) {
          double gate = 0, up = 0;
          for (int64_t c = 0; c < shape.hidden_dim; ++c) {
            const double x = batch.tokens.view().row<float>(t)[c];
            gate += x * gate_up.view().row<float>(i)[c];
            up += x * gate_up.view().row<float>(shape.intermediate_dim + i)[c];
          }
          sum += batch.topk_weights[slot] * gate / (1 + std::exp(-gate)) * up * down.view().row<float>(h)[i];
        }
      }
      EXPECT_NEAR(values[t * shape.hidden_dim + h], sum, 2e-4 * (1 + std::abs(sum))) << t << " " << h;
    }
  }
}

TEST(TokenDispatcher, DevicesThatTheHostCannotTouchGiveTheSameBits) {
  for (Shape shape : {Shape{.dtype = DType::kF32}, Shape{}, Shape{.is_quantized = true}, Shape{.combine = CombineMode::kFast},
                      Shape{.is_quantized = true, .combine = CombineMode::kFast}}) {
    const Batch batch = make_batch(shape, 33, Skew::kUniform);
    const std::string local = run_local(shape, batch, 1), remote = run_with_workers(shape, batch, 2);
    shape.is_apart = true;
    EXPECT_TRUE(run_local(shape, batch, 1) == local) << shape.is_quantized;
    EXPECT_TRUE(run_with_workers(shape, batch, 2) == remote) << shape.is_quantized;
  }
}

TEST(TokenDispatcher, AnyNumberOfWorkersGivesTheBitsOfOneProcess) {
  for (const Shape& shape :
       {Shape{.dtype = DType::kF32}, Shape{}, Shape{.dtype = DType::kF32, .is_quantized = true}, Shape{.is_quantized = true}}) {
    for (const int64_t num_tokens : {1, 2, 33}) {
      for (const Skew skew : {Skew::kUniform, Skew::kAllToFirst}) {
        const Batch batch = make_batch(shape, num_tokens, skew);
        const std::string expected = run_local(shape, batch, 1);
        for (const int num_workers : {1, 2, 3, 8}) {
          EXPECT_EQ(run_with_workers(shape, batch, num_workers), expected)
              << num_workers << " workers, " << num_tokens << " tokens";
        }
      }
    }
  }
}

TEST(TokenDispatcher, CountsWhatTravels) {
  const Shape shape;
  const Batch batch = make_batch(shape, 9, Skew::kUniform);
  with_workers(shape, 3, 9, [&](RemoteTokenDispatcher& dispatcher, Stream&) {
    Matrix out(shape.dtype, 9, shape.hidden_dim);
    for (int i = 0; i < 2; ++i) {
      dispatcher.combine(dispatcher.dispatch(batch.at(1)), out.view());
    }
    const TransportCount count = dispatcher.transport_count();
    EXPECT_EQ(count.layers, 2);
    const int64_t row_bytes = shape.hidden_dim * dtype_bytes(shape.dtype);
    EXPECT_GE(count.bytes_in, 2 * 9 * shape.top_k * row_bytes) << "every token's rows come back one by one";
    EXPECT_LT(count.bytes_in, 2 * (9 * shape.top_k * row_bytes + 3 * 128));
    EXPECT_GE(count.bytes_out, 2 * 9 * row_bytes) << "every token goes to at least one worker";
    EXPECT_GE(count.transport_s, 0);
    EXPECT_LE(count.transport_s, count.wait_s);
    EXPECT_EQ((count - count).bytes_out, 0);
  });
}

TEST(TokenDispatcher, FastCombineAgreesWithExactToRounding) {
  for (Shape shape : {Shape{.dtype = DType::kF32}, Shape{}, Shape{.is_quantized = true}}) {
    for (const Skew skew : {Skew::kUniform, Skew::kAllToFirst}) {
      const Batch batch = make_batch(shape, 33, skew);
      const std::string exact = run_local(shape, batch, 1);
      shape.combine = CombineMode::kFast;
      for (const int num_workers : {1, 2, 3, 8}) {
        const std::string fast = run_with_workers(shape, batch, num_workers);
        expect_close(shape, fast, exact, std::to_string(num_workers) + " workers");
        EXPECT_EQ(fast, run_with_workers(shape, batch, num_workers)) << "not the same twice";
      }
    }
  }
}

TEST(TokenDispatcher, FastCombineOfATokenDoesNotDependOnItsNeighbours) {
  const Shape shape{.combine = CombineMode::kFast};
  const Batch batch = make_batch(shape, 9, Skew::kUniform);
  const std::string together = run_with_workers(shape, batch, 3);
  const auto row_bytes = static_cast<std::size_t>(shape.hidden_dim * dtype_bytes(shape.dtype));
  const auto top_k = static_cast<std::size_t>(shape.top_k);
  for (std::size_t t = 0; t < 9; ++t) {
    Batch alone{Matrix(shape.dtype, 1, shape.hidden_dim), {}, {}, {}, shape.top_k};
    std::memcpy(alone.tokens.view().row_bytes(0), batch.tokens.view().row_bytes(static_cast<int64_t>(t)), row_bytes);
    alone.topk_idx.assign(&batch.topk_idx[t * top_k], &batch.topk_idx[t * top_k] + top_k);
    alone.topk_weights.assign(&batch.topk_weights[t * top_k], &batch.topk_weights[t * top_k] + top_k);
    EXPECT_EQ(run_with_workers(shape, alone, 3), together.substr(t * row_bytes, row_bytes)) << t;
  }
}

TEST(TokenDispatcher, FastCombineReturnsOneRowPerTokenAndWorker) {
  const Shape shape{.combine = CombineMode::kFast};
  const Batch batch = make_batch(shape, 9, Skew::kUniform);
  with_workers(shape, 2, 9, [&](RemoteTokenDispatcher& dispatcher, Stream&) {
    Matrix out(shape.dtype, 9, shape.hidden_dim);
    dispatcher.combine(dispatcher.dispatch(batch.at(1)), out.view());
    EXPECT_LE(dispatcher.transport_count().bytes_in, 2 * (9 * shape.hidden_dim * dtype_bytes(shape.dtype) + 128));
  });
}

TEST(TokenDispatcher, TwoDispatchesMayBeInFlight) {
  const Shape shape;
  const Batch batch = make_batch(shape, 9, Skew::kUniform);
  const std::string first = run_local(shape, batch, 0), second = run_local(shape, batch, 1);
  with_workers(shape, 3, 9, [&](RemoteTokenDispatcher& dispatcher, Stream&) {
    for (int round = 0; round < 5; ++round) {
      Matrix a(shape.dtype, 9, shape.hidden_dim), b(shape.dtype, 9, shape.hidden_dim);
      DispatchHandle one = dispatcher.dispatch(batch.at(0));
      DispatchHandle two = dispatcher.dispatch(batch.at(1));
      dispatcher.combine(std::move(one), a.view());
      dispatcher.combine(std::move(two), b.view());
      EXPECT_EQ(bytes_of(a.view()), first);
      EXPECT_EQ(bytes_of(b.view()), second);
    }
    EXPECT_EQ(dispatcher.expert_load().rank_rows(0).size(), 3U);
  });
}

TEST(TokenDispatcher, ASilentWorkerIsNamedAtTheDeadline) {
  const Shape shape;
  const auto groups = make_local_groups(3);
  RankParts parts(1);
  const Batch batch = make_batch(shape, 2, Skew::kUniform);
  GroupLinks links(*groups[0]);
  RemoteTokenDispatcher dispatcher(links, placement_of(shape, 2), links_of(links, 2), nullptr, parts.stream(),
                                   {.hidden_dim = shape.hidden_dim,
                                    .max_tokens = 2,
                                    .top_k = shape.top_k,
                                    .dtype = shape.dtype,
                                    .row_dtype = shape.row_dtype(),
                                    .timeout = std::chrono::milliseconds(50)});
  Matrix out(shape.dtype, 2, shape.hidden_dim);
  DispatchHandle handle = dispatcher.dispatch(batch.at(0));
  try {
    dispatcher.combine(std::move(handle), out.view());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded);
    EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
  }
}

/// One worker that answers the first request with `damage` done to its header.
void answer_wrongly(Group& group, const Shape& shape, const std::function<void(WireHeader&)>& damage) {
  RankParts parts(1);
  const ExpertMap map = ExpertMap::contiguous(shape.num_experts, worker_ranks(1));
  const ExpertBank bank = make_bank(shape, parts.matmul(), map, 0);
  ReplyWriter replies(bank, parts.stream(),
                      {.map_epoch = map.epoch(), .max_tokens = 2, .top_k = shape.top_k, .dtype = shape.dtype});
  AlignedBuffer request(static_cast<std::size_t>(max_request_bytes(replies.shape())));
  AlignedBuffer reply(static_cast<std::size_t>(max_reply_bytes(replies.shape())));
  const Deadline deadline = test::in_good_time();
  const auto receive = group.irecv({request.data(), request.size()}, Rank{0}, kRequestTag, Fit::kUpTo);
  const std::size_t bytes = group.wait(*receive, deadline);
  const std::span<const std::byte> answer =
      replies.write(parse_request({request.data(), bytes}, replies.shape()), {reply.data(), reply.size()});
  WireHeader header = read_header(answer, map.epoch());
  damage(header);
  write_header(header, {reply.data(), reply.size()});
  group.wait(*group.isend(answer, Rank{0}, kReplyTag), deadline);
}

TEST(TokenDispatcher, AnAnswerToSomethingElseIsAnErrorThatNamesTheRank) {
  const Shape shape;
  const Batch batch = make_batch(shape, 2, Skew::kUniform);
  const std::vector<std::pair<std::string, std::function<void(WireHeader&)>>> cases = {
      {"epoch of the expert map 2; allowed: 1", [](WireHeader& h) { h.map_epoch = 2; }},
      {"protocol version", [](WireHeader& h) { h.version = 1; }},
      {"kind", [](WireHeader& h) { h.kind = WireKind::kRows; }},
      {"source 3; allowed: 0", [](WireHeader& h) { h.source = 3; }},
      {"sequence 9; allowed: 0", [](WireHeader& h) { h.sequence = 9; }},
      {"attempt 1; allowed: 0", [](WireHeader& h) { h.attempt = 1; }},
      {"step", [](WireHeader& h) { h.step = 8; }},
      {"layer", [](WireHeader& h) { h.layer = 0; }},
      {"micro-batch 0; allowed: 1", [](WireHeader& h) { h.micro_batch = 0; }},
      {"number of tokens", [](WireHeader& h) { h.num_tokens = 1; }},
      {"number of rows", [](WireHeader& h) { h.num_rows = -1; }},
      {"number of experts", [](WireHeader& h) { h.num_local_experts = 7; }},
      {"width", [](WireHeader& h) { h.hidden_dim = 1; }},
      {"dtype", [](WireHeader& h) { h.dtype = DType::kF32; }},
      {"way to combine", [](WireHeader& h) { h.combine = CombineMode::kFast; }},
  };
  for (const auto& [what, damage] : cases) {
    const auto groups = make_local_groups(2);
    std::thread worker([&, &change = damage] { answer_wrongly(*groups[1], shape, change); });
    RankParts parts(1);
    GroupLinks links(*groups[0]);
    RemoteTokenDispatcher dispatcher(links, placement_of(shape, 1), links_of(links, 1), nullptr, parts.stream(),
                                     {.hidden_dim = shape.hidden_dim,
                                      .max_tokens = 2,
                                      .top_k = shape.top_k,
                                      .dtype = shape.dtype,
                                      .row_dtype = shape.row_dtype(),
                                      .timeout = kTestLimit});
    dispatcher.begin_step(7);
    Matrix out(shape.dtype, 2, shape.hidden_dim);
    DispatchArgs args = batch.at(1);
    args.micro_batch = 1;
    try {
      dispatcher.combine(dispatcher.dispatch(args), out.view());
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInternal);
      EXPECT_EQ(std::string(error.what()).rfind("rank 1: ", 0), 0U) << error.what();
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
    worker.join();
  }
}

}  // namespace
}  // namespace ferry
