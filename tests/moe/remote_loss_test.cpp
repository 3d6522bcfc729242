#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/stream/stream_hub.h"
#include "moe/local_token_dispatcher.h"
#include "moe/remote/remote_token_dispatcher.h"
#include "moe/reply_writer.h"
#include "tests/moe/moe_ranks.h"

// Workers that die, hang or answer late while a layer is computed: the rows come from others, with the same bits.

namespace ferry {
namespace {

using test::Batch;
using test::RankParts;
using test::Shape;

enum class Ill {
  kNot,
  kDiesBeforeReading,
  kDiesBeforeAnswering,
  kDiesInTheAnswer,  // half of it is sent
  kAnswersWrongly,
  kIsLate,
};

/// A worker over one end of a socket pair, which falls ill at its `at`-th request.
class WorkerThread {
 public:
  WorkerThread(const Shape& shape, const ExpertPlacement& placement, int32_t idx, int64_t max_tokens, Ill ill, int at)
      : ill_(ill), at_(at) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    theirs_ = FileDescriptor(ends[0]);
    thread_ = std::thread([=, this, own = ends[1], &placement] {
      try {
        serve(shape, placement, idx, max_tokens, FileDescriptor(own));
      } catch (const Error&) {  // the coordinator is done with it
      }
    });
  }
  ~WorkerThread() {
    is_over_ = true;
    thread_.join();
  }

  FileDescriptor take_socket() { return std::move(theirs_); }
  int num_answered() const { return num_answered_; }

 private:
  void serve(const Shape& shape, const ExpertPlacement& placement, int32_t idx, int64_t max_tokens, FileDescriptor socket) {
    RankParts parts(1, shape);
    const ExpertBank bank = make_bank(shape, parts.matmul(), placement.layer(0), idx);
    ReplyWriter replies(
        bank, parts.stream(),
        {.map_epoch = 1, .max_tokens = max_tokens, .top_k = shape.top_k, .dtype = shape.dtype, .combine = shape.combine});
    AlignedBuffer request(static_cast<std::size_t>(max_request_bytes(replies.shape())));
    AlignedBuffer reply(static_cast<std::size_t>(max_reply_bytes(replies.shape())));
    const int raw = socket.get();
    StreamHub hub;
    const std::unique_ptr<Link> link = hub.adopt(std::move(socket), Rank{0});
    const auto soon = [] { return std::chrono::steady_clock::now() + std::chrono::seconds(60); };
    for (int number = 0;; ++number) {
      const bool is_ill = number == at_;
      if (is_ill && ill_ == Ill::kDiesBeforeReading) return link->fail("dies");
      const auto receive = link->irecv({request.data(), request.size()}, kRequestTag, Fit::kUpTo);
      const std::size_t bytes = link->wait(*receive, soon());
      const std::span<const std::byte> message(request.data(), bytes);
      if (read_header(message, 1).kind == WireKind::kShutDown) return;
      if (is_ill && ill_ == Ill::kDiesBeforeAnswering) return link->fail("dies");
      const std::span<const std::byte> answer =
          replies.write(parse_request(message, replies.shape()), {reply.data(), reply.size()});
      if (is_ill && ill_ == Ill::kDiesInTheAnswer) {
        EXPECT_GT(send(raw, answer.data(), answer.size() / 2, MSG_NOSIGNAL), 0);  // no frame at all is worse than half of one
        return link->fail("dies");
      }
      if (is_ill && ill_ == Ill::kAnswersWrongly) reply.data()[24] ^= std::byte{1};  // the step
      if (is_ill && ill_ == Ill::kIsLate) {
        while (!is_over_ && !may_answer) std::this_thread::yield();
      }
      link->wait(*link->isend(answer, kReplyTag), soon());
      ++num_answered_;
    }
  }

  const Ill ill_;
  const int at_;
  FileDescriptor theirs_{-1};
  std::atomic<bool> is_over_{false};
  std::atomic<int> num_answered_{0};

 public:
  std::atomic<bool> may_answer{false};

 private:
  std::thread thread_;  // last: it uses all of the above
};

/// All experts in this process, as the way out.
class AllExperts final : public OrphanExperts {
 public:
  AllExperts(const Shape& shape, RankParts& parts, int64_t max_rows)
      : bank_(make_bank(shape, parts.matmul(), ExpertMap::contiguous(shape.num_experts, std::array{Rank{0}}), 0)),
        ffn_(bank_.dims(), bank_.type(), parts.stream(), shape.dtype, max_rows) {}
  void run(int64_t layer, const ExpertRows& rows, MatrixView out) override {
    num_rows += static_cast<int64_t>(rows.row_token.size());
    ffn_.run(bank_.layer(layer), rows, out);
  }

  int64_t num_rows = 0;

 private:
  ExpertBank bank_;
  GroupedFfn ffn_;
};

/// Two copies of each expert on three workers.
ExpertPlacement placed_twice(const Shape& shape) {
  LayerPlacement layer(3);
  for (int32_t e = 0; e < shape.num_experts; ++e) {
    layer[static_cast<std::size_t>(e % 3)].push_back({e});
    layer[static_cast<std::size_t>((e + 1) % 3)].push_back({e});
  }
  const std::vector<LayerPlacement> layers(static_cast<std::size_t>(shape.num_layers), layer);
  return ExpertPlacement(1, worker_ranks(3), shape.num_experts, layers);
}

/// One coordinator, three workers of which the second falls ill.
struct Job {
  Job(const Shape& job_shape, ExpertPlacement job_placement, Ill ill, int at, bool has_orphans, int64_t max_tokens = 9)
      : shape(job_shape),
        placement(std::move(job_placement)),
        parts(2, shape),
        orphans(shape, parts, max_tokens * shape.top_k) {
    std::vector<Link*> pointers;
    for (int32_t w = 0; w < 3; ++w) {
      workers.emplace_back(std::make_unique<WorkerThread>(shape, placement, w, max_tokens, w == 1 ? ill : Ill::kNot, at));
      links.push_back(hub.adopt(workers.back()->take_socket(), Rank{w + 1}));
      pointers.push_back(links.back().get());
    }
    dispatcher.emplace(hub, placement, pointers, has_orphans ? &orphans : nullptr, parts.stream(),
                       RemoteTokenDispatcher::Options{.hidden_dim = shape.hidden_dim,
                                                      .max_tokens = max_tokens,
                                                      .top_k = shape.top_k,
                                                      .dtype = shape.dtype,
                                                      .row_dtype = shape.row_dtype(),
                                                      .combine = shape.combine,
                                                      .patience = {.at_least = std::chrono::milliseconds(100),
                                                                   .at_least_alone = std::chrono::milliseconds(200)}},
                       [this](const WorkerChange& change) {
                         if (change.from != WorkerState::kVacant) changes.push_back(change);
                       });
  }
  ~Job() { dispatcher->shut_down(); }

  /// A step of two layers with two micro-batches each.
  std::string step(const Batch& batch, int64_t number) {
    dispatcher->begin_step(number);
    std::string bytes;
    for (int64_t layer = 0; layer < 2; ++layer) {
      Matrix a(shape.dtype, batch.tokens.rows(), shape.hidden_dim), b(shape.dtype, batch.tokens.rows(), shape.hidden_dim);
      DispatchArgs second = batch.at(layer);
      second.micro_batch = 1;
      DispatchHandle one = dispatcher->dispatch(batch.at(layer));
      DispatchHandle two = dispatcher->dispatch(second);
      dispatcher->combine(std::move(one), a.view());
      dispatcher->combine(std::move(two), b.view());
      bytes += test::bytes_of(a.view()) + test::bytes_of(b.view());
    }
    return bytes;
  }
  std::string expected(const Batch& batch) const {
    const std::string zero = run_local(shape, batch, 0), one = run_local(shape, batch, 1);
    return zero + zero + one + one;
  }
  WorkerState state() const { return dispatcher->workers()[1].state; }

  const Shape shape;
  const ExpertPlacement placement;
  StreamHub hub;
  RankParts parts;
  AllExperts orphans;
  std::vector<std::unique_ptr<WorkerThread>> workers;
  std::vector<std::unique_ptr<Link>> links;
  std::optional<RemoteTokenDispatcher> dispatcher;
  std::vector<WorkerChange> changes;
};

ExpertPlacement placed_once(const Shape& shape) {
  return ExpertPlacement::contiguous(shape.num_layers, shape.num_experts, worker_ranks(3));
}

TEST(RemoteLoss, WhateverHappensToAWorkerItsRowsComeFromOthersWithTheSameBits) {
  for (const Ill ill : {Ill::kDiesBeforeReading, Ill::kDiesBeforeAnswering, Ill::kDiesInTheAnswer, Ill::kAnswersWrongly}) {
    for (const bool is_twice : {false, true}) {
      for (const int at : {0, 1, 3, 6}) {
        const Shape shape{.is_quantized = at == 3};
        const Batch batch = make_batch(shape, 9, Skew::kUniform);
        Job job(shape, is_twice ? placed_twice(shape) : placed_once(shape), ill, at, /*has_orphans=*/true);
        const std::string expected = job.expected(batch);
        for (int64_t step = 0; step < 3; ++step)
          EXPECT_TRUE(job.step(batch, step) == expected) << static_cast<int>(ill) << is_twice << at << " step " << step;
        EXPECT_EQ(job.state(), WorkerState::kMasked);
        ASSERT_EQ(job.changes.size(), 1U);
        EXPECT_EQ(job.changes[0].rank, Rank{2});
        EXPECT_NE(job.changes[0].reason.find("rank 2"), std::string::npos) << job.changes[0].reason;
        EXPECT_EQ(job.orphans.num_rows == 0, is_twice) << "another holder is asked before this rank computes";
      }
    }
  }
}

TEST(RemoteLoss, AllWorkersMayDie) {
  const Shape shape;
  const Batch batch = make_batch(shape, 9, Skew::kUniform);
  Job job(shape, placed_once(shape), Ill::kNot, 0, /*has_orphans=*/true);
  const std::string expected = job.expected(batch);
  EXPECT_TRUE(job.step(batch, 0) == expected);
  for (const auto& link : job.links) link->fail("cut");
  EXPECT_TRUE(job.step(batch, 1) == expected);
  EXPECT_EQ(job.dispatcher->workers().healthy(), 0U);
}

TEST(RemoteLoss, WithoutAWayOutTheErrorNamesTheLostRank) {
  const Shape shape;
  const Batch batch = make_batch(shape, 9, Skew::kUniform);
  Job job(shape, placed_once(shape), Ill::kDiesBeforeAnswering, 2, /*has_orphans=*/false);
  try {
    for (int64_t step = 0; step < 3; ++step) job.step(batch, step);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_NE(std::string(error.what()).find("rank 2"), std::string::npos) << error.what();
  }
}

TEST(RemoteLoss, ALateWorkerIsHedgedAndComesBack) {
  for (const bool is_twice : {false, true}) {
    const Shape shape;
    const Batch batch = make_batch(shape, 9, Skew::kUniform);
    const int at = static_cast<int>(2 * WorkerPace::kMinReplies);
    Job job(shape, is_twice ? placed_twice(shape) : placed_once(shape), Ill::kIsLate, at, /*has_orphans=*/true);
    const std::string expected = job.expected(batch);
    int64_t step = 0;
    while (job.state() != WorkerState::kSuspect && step < 20) EXPECT_TRUE(job.step(batch, step++) == expected);
    ASSERT_EQ(job.state(), WorkerState::kSuspect);
    if (job.changes.size() == 1) {  // a slow host may doubt others, too
      EXPECT_EQ(job.orphans.num_rows == 0, is_twice);
    }
    EXPECT_TRUE(job.step(batch, step++) == expected) << "it gets nothing new";
    job.workers[1]->may_answer = true;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (job.state() == WorkerState::kSuspect && std::chrono::steady_clock::now() < give_up)
      EXPECT_TRUE(job.step(batch, step++) == expected);
    EXPECT_EQ(job.state(), WorkerState::kHealthy);
    const int answered = job.workers[1]->num_answered();
    for (int i = 0; i < 100 && job.workers[1]->num_answered() == answered; ++i)
      EXPECT_TRUE(job.step(batch, step++) == expected);
    EXPECT_GT(job.workers[1]->num_answered(), answered) << "it gets rows again";
  }
}

TEST(RemoteLoss, AFastCombineAddsUpWhatOthersSendInItsPlace) {
  for (const bool is_twice : {false, true}) {
    const Shape shape{.dtype = DType::kF32, .combine = CombineMode::kFast};
    const Batch batch = make_batch(shape, 9, Skew::kUniform);
    Job job(shape, is_twice ? placed_twice(shape) : placed_once(shape), Ill::kDiesBeforeAnswering, 5, /*has_orphans=*/true);
    const std::string healthy = job.step(batch, 0), ill = job.step(batch, 1), masked = job.step(batch, 2);
    test::expect_close(shape, ill, healthy, "while it dies");
    test::expect_close(shape, masked, healthy, "without it");
  }
}

TEST(RemoteLoss, CopiesShareTheRowsSoThatTheFullestWorkerIsLeastFull) {
  const Shape shape;
  const Batch batch = make_batch(shape, 9, Skew::kAllToFirst);  // experts 0 to 3, of which worker 0 would have three alone
  Job job(shape, placed_twice(shape), Ill::kNot, 0, /*has_orphans=*/false);
  EXPECT_TRUE(job.step(batch, 0) == job.expected(batch));
  const std::vector<int64_t> rows = job.dispatcher->expert_load().rank_rows(0);
  EXPECT_LE(*std::ranges::max_element(rows), 2 * 2 * 9) << "two of four experts in each of two micro-batches";
}

}  // namespace
}  // namespace ferry
