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
#include "tests/moe/moe_cases.h"
#include "tests/support/apart_device.h"
#include "tests/support/quantized_rows.h"

// The in-process dispatcher against a plain sum over experts, and the distributed one against the in-process one, bit for bit.

namespace ferry {
namespace {

struct Shape {
  int64_t num_layers = 2;
  int64_t num_experts = 8;
  int64_t top_k = 4;
  int64_t hidden_dim = 24;
  int64_t intermediate_dim = 20;
  DType dtype = DType::kBF16;
  bool is_quantized = false;
  CombineMode combine = CombineMode::kExact;
  bool is_apart = false;  // computed on devices that the host cannot touch

  WeightType weights() const { return is_quantized ? WeightType{WeightFormat::kInt8, 0} : plain_weights(dtype); }
  DType row_dtype() const { return is_quantized ? DType::kI8 : dtype; }
};

Matrix random_matrix(DType dtype, int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Matrix m(dtype, rows, cols);
  visit_dtype(dtype, [&]<class T>() {
    for (int64_t i = 0; i < rows * cols; ++i) m.view().template row<T>(0)[i] = from_float<T>(normal(random));
  });
  return m;
}

/// Threads, kernels and weights of one rank. The vector kernels' product is used: it needs no OpenMP, which ThreadSanitizer
/// cannot see into.
struct RankParts {
  explicit RankParts(int num_threads, const Shape& shape = {}) : pool(num_threads), host_stream(host, pool) {
    if (!shape.is_apart) return;
    device.emplace(DType::kF32);
    device_stream.emplace(*device, pool);
  }
  Stream& stream() { return device_stream ? *device_stream : host_stream; }
  Matmul& matmul() { return stream().backend().matmul(); }

  ThreadPool pool;
  Backend host = select_backend("auto", "auto", DType::kF32);
  Stream host_stream;
  std::optional<test::ApartDevice> device;
  std::optional<test::ApartStream> device_stream;
};

ExpertBank make_bank(const Shape& shape, Matmul& matmul, const ExpertMap& map, int32_t rank_idx) {
  const auto local = map.experts_of(rank_idx);
  ExpertBank bank(shape.num_layers, static_cast<int64_t>(local.size()), {shape.hidden_dim, shape.intermediate_dim},
                  shape.weights());
  const auto pack = [&](const Matrix& weights, WeightUse use) {
    if (!shape.weights().is_integer()) return matmul.pack(weights.view(), use);
    return matmul.pack(quantize_weights(weights.view(), shape.weights()), use);
  };
  for (int64_t l = 0; l < shape.num_layers; ++l) {
    for (std::size_t e = 0; e < local.size(); ++e) {
      const auto seed = static_cast<uint32_t>(l * 1000 + map.logical_of(local[e]).value);
      bank.set(l, static_cast<int64_t>(e),
               make_expert(
                   pack(random_matrix(shape.dtype, 2 * shape.intermediate_dim, shape.hidden_dim, seed), WeightUse::kGated),
                   pack(random_matrix(shape.dtype, shape.hidden_dim, shape.intermediate_dim, seed + 500), WeightUse::kPlain)));
    }
  }
  return bank;
}

std::string bytes_of(ConstMatrixView m) {
  return {reinterpret_cast<const char*>(m.data), static_cast<std::size_t>(m.rows * m.cols * dtype_bytes(m.dtype))};
}

struct Batch {
  Matrix tokens;
  std::vector<int32_t> topk_idx;
  std::vector<float> topk_weights;
  QuantizedRows codes;  // of the tokens, if the experts are quantised
  int64_t top_k = 0;

  DispatchArgs at(int64_t layer) const {
    return {.layer = layer,
            .tokens = rows(),
            .topk_idx = topk_idx,
            .topk_weights = topk_weights,
            .slot_weights = topk_weights.data(),
            .top_k = top_k};
  }
  MatmulRows rows() const {
    return codes.scales.empty() ? MatmulRows{tokens.view()} : MatmulRows{codes.values.view(), codes.scales.data()};
  }
};

Batch make_batch(const Shape& shape, int64_t num_tokens, Skew skew) {
  Batch batch{random_matrix(shape.dtype, num_tokens, shape.hidden_dim, 77),
              random_topk(num_tokens, shape.num_experts, shape.top_k, skew, 3),
              {},
              {},
              shape.top_k};
  for (std::size_t i = 0; i < batch.topk_idx.size(); ++i)
    batch.topk_weights.push_back(round_to<bfloat16>(0.05F + 0.01F * static_cast<float>(i % 13)));
  if (shape.is_quantized) {
    batch.codes = QuantizedRows(num_tokens, shape.hidden_dim);
    RankParts parts(1);
    quantize_rows(parts.stream(),
                  {.x = batch.tokens.view(), .codes = batch.codes.values.view(), .scales = batch.codes.scales.data()});
  }
  return batch;
}

/// The bytes of what becomes of a batch, which is given to the stream's backend first.
std::string run(TokenDispatcher& dispatcher, Stream& stream, const Batch& batch, int64_t layer) {
  const MatmulRows rows = batch.rows();
  const int64_t num_tokens = rows.x.rows;
  DeviceRows tokens(stream, rows.x.dtype, num_tokens, rows.x.cols);
  const std::span<const float> scales = batch.codes.scales, weights = batch.topk_weights;
  const Array<float> device_scales(stream.memory(), scales), device_weights(stream.memory(), weights);
  DispatchArgs args = batch.at(layer);
  args.tokens = {tokens.take(rows.x), rows.scales ? device_scales.data() : nullptr};
  args.slot_weights = device_weights.data();
  Matrix out(stream.memory(), batch.tokens.dtype(), num_tokens, batch.tokens.cols());
  dispatcher.combine(dispatcher.dispatch(args), out.view());
  HostRows look(stream, out.dtype(), num_tokens, out.cols());
  look.fetch(out.view());
  return bytes_of(look.look());
}

std::string run_local(const Shape& shape, const Batch& batch, int64_t layer) {
  RankParts parts(2, shape);
  const std::vector<Rank> self = {Rank{0}};
  const ExpertBank bank = make_bank(shape, parts.matmul(), ExpertMap::contiguous(shape.num_experts, self), 0);
  LocalTokenDispatcher dispatcher(bank, parts.stream(),
                                  {.max_tokens = batch.tokens.rows(), .top_k = shape.top_k, .dtype = shape.dtype});
  return run(dispatcher, parts.stream(), batch, layer);
}

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
    const std::size_t bytes = group.wait(*receive, std::chrono::steady_clock::now() + std::chrono::seconds(60));
    const std::span<const std::byte> message(request.data(), bytes);
    if (read_header(message, map.epoch()).kind == WireKind::kShutDown) return;
    const auto send =
        group.isend(replies.write(parse_request(message, replies.shape()), {reply.data(), reply.size()}), Rank{0}, kReplyTag);
    group.wait(*send, std::chrono::steady_clock::now() + std::chrono::seconds(60));
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
                                    .combine = shape.combine});
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

/// The values behind run_local's bytes, and the sum of magnitudes that bounds their rounding.
void expect_close(const Shape& shape, const std::string& fast, const std::string& exact, const std::string& what) {
  ASSERT_EQ(fast.size(), exact.size());
  visit_dtype(shape.dtype, [&]<class T>() {
    const auto* a = reinterpret_cast<const T*>(fast.data());
    const auto* b = reinterpret_cast<const T*>(exact.data());
    float largest = 0;
    for (std::size_t i = 0; i < exact.size() / sizeof(T); ++i) largest = std::max(largest, std::abs(to_float(b[i])));
    const float tolerance = (shape.dtype == DType::kF32 ? 1e-6F : 0.02F) * largest;
    for (std::size_t i = 0; i < exact.size() / sizeof(T); ++i) ASSERT_NEAR(to_float(a[i]), to_float(b[i]), tolerance) << what;
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
  const Deadline deadline = group.now() + std::chrono::seconds(60);
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
                                      .row_dtype = shape.row_dtype()});
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
