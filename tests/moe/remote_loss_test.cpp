#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/stream/stream_hub.h"
#include "moe/local_token_dispatcher.h"
#include "moe/remote/finite_rows.h"
#include "moe/remote/remote_token_dispatcher.h"
#include "moe/reply_writer.h"
#include "profiler/recorder.h"
#include "tests/moe/moe_ranks.h"
#include "tests/support/eventually.h"
#include "tests/support/expect_error.h"
#include "tests/support/in_good_time.h"

// Workers that die, hang or answer late while a layer is computed: the rows come from others, with the same bits. So they do
// when workers come and go between steps.

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
  kAnswersNan,       // from then on, in one value of the last row
  kAnswersInfinity,  // in the same way
  kIsLate,
};

/// The placements of a job, by epoch.
using Placements = std::map<uint32_t, ExpertPlacement>;

/// A worker over one end of a socket pair, which falls ill at its `at`-th request. It holds what the placement gives it whose
/// epoch its last request has. It says of each answer that it took the same time.
class WorkerThread {
 public:
  WorkerThread(const Shape& shape, const Placements& placements, int32_t idx, int64_t max_tokens, Ill ill, int at)
      : seat_(idx), ill_(ill), at_(at) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    theirs_ = FileDescriptor(ends[0]);
    thread_ = std::thread([=, this, own = ends[1], &placements] {
      try {
        serve(shape, placements, idx, max_tokens, FileDescriptor(own));
      } catch (const Error&) {  // the coordinator is done with it
      }
    });
  }
  ~WorkerThread() {
    let_answer();
    thread_.join();
  }

  FileDescriptor take_socket() { return std::move(theirs_); }
  int32_t seat() const { return seat_; }
  int num_answered() const { return num_answered_; }
  void await_answers(int count) const {
    eventually([&] { return num_answered_ >= count; }, "answer " + std::to_string(count) + " of a worker",
               [&] { return std::to_string(num_answered_) + " answers"; });
  }
  /// Of a late one: whether it has an answer and keeps it.
  bool is_silent() const {
    const std::scoped_lock lock(mutex_);
    return is_holding_ && !may_answer_;
  }
  void let_answer() {
    const std::scoped_lock lock(mutex_);
    may_answer_ = true;
    changed_.notify_all();
  }

 private:
  void serve(const Shape& shape, const Placements& placements, int32_t idx, int64_t max_tokens, FileDescriptor socket) {
    RankParts parts(1, shape);
    std::optional<ExpertBank> bank;
    std::optional<ReplyWriter> replies;
    const auto hold = [&](uint32_t epoch) {
      if (replies && replies->shape().map_epoch == epoch) return;
      replies.reset();
      bank.emplace(make_bank(shape, parts.matmul(), placements.at(epoch).layer(0), idx));
      replies.emplace(*bank, parts.stream(),
                      ReplyWriter::Options{.map_epoch = epoch,
                                           .max_tokens = max_tokens,
                                           .top_k = shape.top_k,
                                           .dtype = shape.dtype,
                                           .combine = shape.combine});
    };
    constexpr std::size_t kMostBytes = std::size_t{1} << 20;
    AlignedBuffer request(kMostBytes), reply(kMostBytes);
    const int raw = socket.get();
    StreamHub hub;
    const std::unique_ptr<Link> link = hub.adopt(std::move(socket), Rank{0});
    for (int number = 0;; ++number) {
      const bool is_ill = number == at_;
      if (is_ill && ill_ == Ill::kDiesBeforeReading) return link->fail("dies");
      const auto receive = link->irecv({request.data(), request.size()}, kRequestTag, Fit::kUpTo);
      const std::size_t bytes = link->wait(*receive, test::in_good_time());
      const std::span<const std::byte> message(request.data(), bytes);
      const WireHeader header = read_header_of_any_epoch(message);
      if (header.kind == WireKind::kShutDown) return;
      hold(header.map_epoch);
      if (is_ill && ill_ == Ill::kDiesBeforeAnswering) return link->fail("dies");
      const std::span<const std::byte> answer =
          replies->write(parse_request(message, replies->shape()), {reply.data(), reply.size()});
      say_compute_time({reply.data(), reply.size()});
      if (is_ill && ill_ == Ill::kDiesInTheAnswer) {
        EXPECT_GT(send(raw, answer.data(), answer.size() / 2, MSG_NOSIGNAL), 0);  // no frame at all is worse than half of one
        return link->fail("dies");
      }
      if (is_ill && ill_ == Ill::kAnswersWrongly) reply.data()[24] ^= std::byte{1};  // the step
      if (number >= at_ && ill_ == Ill::kAnswersNan) spoil({reply.data(), reply.size()}, NAN);
      if (number >= at_ && ill_ == Ill::kAnswersInfinity) spoil({reply.data(), reply.size()}, -INFINITY);
      if (is_ill && ill_ == Ill::kIsLate) hold_back();
      link->wait(*link->isend(answer, kReplyTag), test::in_good_time());
      ++num_answered_;
    }
  }

  static void say_compute_time(std::span<std::byte> answer) {
    WireHeader header = read_header_of_any_epoch(answer);
    header.compute_ns = 100'000;
    write_header(header, answer);
  }
  /// Damages the last value of an answer that has any.
  static void spoil(std::span<std::byte> answer, float value) {
    const MatrixView rows = lay_out_reply(read_header_of_any_epoch(answer), answer);
    if (rows.rows == 0) return;
    visit_dtype(rows.dtype, [&]<class T>() { rows.row<T>(rows.rows - 1)[rows.cols - 1] = from_float<T>(value); });
  }
  void hold_back() {
    std::unique_lock lock(mutex_);
    is_holding_ = true;
    changed_.wait(lock, [this] { return may_answer_; });
  }

  const int32_t seat_;
  const Ill ill_;
  const int at_;
  FileDescriptor theirs_{-1};
  std::atomic<int> num_answered_{0};
  mutable std::mutex mutex_;  // guards the two below
  std::condition_variable changed_;
  bool is_holding_ = false, may_answer_ = false;
  std::thread thread_;  // last: it uses all of the above
};

/// A hub whose time stands still. Whoever waits gets what others send, however long that takes. Only where all that are waited
/// for are silent for good does the time of the wait pass, at once.
class StillHub final : public LinkHub {
 public:
  StillHub(LinkHub& hub, std::function<bool(Rank)> is_silent) : hub_(hub), is_silent_(std::move(is_silent)) {}

  Deadline now() const override { return now_; }
  std::size_t wait_any(std::span<PendingOp* const> ops, Deadline deadline) override {
    const Deadline give_up = test::in_good_time();
    while (true) {
      const bool are_silent = std::ranges::all_of(ops, [this](const PendingOp* op) { return is_silent_(op->info.peer); });
      try {
        return hub_.wait_any(ops, are_silent ? test::at_once() : test::at_once() + kLook);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kDeadlineExceeded || test::at_once() >= give_up) throw;
      }
      if (!are_silent) continue;
      now_ = std::max(now_, deadline);
      throw Error(ErrorCode::kDeadlineExceeded, "all are silent");
    }
  }
  void advance(Deadline::duration time) { now_ += time; }

 private:
  static constexpr std::chrono::milliseconds kLook{5};  // between two looks at who is silent

  LinkHub& hub_;
  const std::function<bool(Rank)> is_silent_;
  Deadline now_ = std::chrono::steady_clock::now();
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

/// One coordinator, three workers of which the second falls ill, or the third as well. Placements of epochs behind the first
/// one are `later`.
struct Job {
  Job(const Shape& job_shape, ExpertPlacement placement, Ill ill, int at, bool has_orphans, int64_t most_tokens = 9,
      const std::vector<ExpertPlacement>& later = {}, bool is_third_ill = false)
      : shape(job_shape), max_tokens(most_tokens), parts(2, shape), orphans(shape, parts, max_tokens * shape.top_k) {
    placements.emplace(placement.epoch(), std::move(placement));
    for (const ExpertPlacement& next : later) placements.emplace(next.epoch(), next);
    std::vector<Link*> pointers;
    for (int32_t w = 0; w < 3; ++w) pointers.push_back(let_come(w, w == 1 || (w == 2 && is_third_ill) ? ill : Ill::kNot, at));
    dispatcher.emplace(clock, placements.at(1), pointers, has_orphans ? &orphans : nullptr, parts.stream(),
                       RemoteTokenDispatcher::Options{.hidden_dim = shape.hidden_dim,
                                                      .max_tokens = max_tokens,
                                                      .top_k = shape.top_k,
                                                      .dtype = shape.dtype,
                                                      .row_dtype = shape.row_dtype(),
                                                      .combine = shape.combine,
                                                      .timeout = kTestLimit,
                                                      .patience = {.at_least = std::chrono::milliseconds(100),
                                                                   .at_least_alone = std::chrono::milliseconds(200)}},
                       [this](const WorkerChange& change) {
                         if (change.from != WorkerState::kVacant) changes.push_back(change);
                         if (on_change) on_change(change);
                       });
  }
  ~Job() { dispatcher->shut_down(); }

  /// A worker for the seat of index `seat`.
  Link* let_come(int32_t seat, Ill ill = Ill::kNot, int at = 0) {
    workers.emplace_back(std::make_unique<WorkerThread>(shape, placements, seat, max_tokens, ill, at));
    links.push_back(hub.adopt(workers.back()->take_socket(), Rank{seat + 1}));
    return links.back().get();
  }
  /// Goes over to the placement of `epoch`, with those who sit there.
  void assign(uint32_t epoch, const std::vector<Link*>& seats) { dispatcher->assign(placements.at(epoch), seats); }

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
  bool is_silent(Rank rank) const {
    return std::ranges::any_of(workers, [&](const auto& w) { return Rank{w->seat() + 1} == rank && w->is_silent(); });
  }
  /// Steps until the second worker is in doubt; it falls ill soon. Returns the number of the next step.
  int64_t step_until_suspect(const Batch& batch, const std::string& expected) {
    int64_t step_number = 0;
    while (state() != WorkerState::kSuspect && step_number < 20) EXPECT_TRUE(step(batch, step_number++) == expected);
    EXPECT_EQ(state(), WorkerState::kSuspect);
    return step_number;
  }
  /// All that it owes has come, and nobody has looked.
  void let_late_answers_come() {
    const int num_owed = dispatcher->workers()[1].num_late, num_before = workers[1]->num_answered();
    EXPECT_GT(num_owed, 0);
    workers[1]->let_answer();
    workers[1]->await_answers(num_before + num_owed);
  }

  const Shape shape;
  const int64_t max_tokens;
  Placements placements;  // no more come when there are workers
  StreamHub hub;
  StillHub clock{hub, [this](Rank rank) { return is_silent(rank); }};
  RankParts parts;
  AllExperts orphans;
  std::vector<std::unique_ptr<WorkerThread>> workers;
  std::vector<std::unique_ptr<Link>> links;
  std::optional<RemoteTokenDispatcher> dispatcher;
  std::vector<WorkerChange> changes;
  std::function<void(const WorkerChange&)> on_change;
};

ExpertPlacement placed_once(const Shape& shape) {
  return ExpertPlacement::contiguous(shape.num_layers, shape.num_experts, worker_ranks(3));
}

/// The same on as many workers as `counts` has, with so many experts each, from the last expert on down.
ExpertPlacement placed_by_count(const Shape& shape, uint32_t epoch, const std::vector<int>& counts) {
  LayerPlacement layer(counts.size());
  int32_t next = static_cast<int32_t>(shape.num_experts);
  for (std::size_t w = 0; w < counts.size(); ++w) {
    for (int i = 0; i < counts[w]; ++i) layer[w].push_back({--next});
  }
  EXPECT_EQ(next, 0);
  const std::vector<LayerPlacement> layers(static_cast<std::size_t>(shape.num_layers), layer);
  return ExpertPlacement(epoch, worker_ranks(static_cast<int>(counts.size())), shape.num_experts, layers);
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

/// In each dtype of replies, and of tokens.
TEST(RemoteLoss, AWorkerWhoseRepliesAreNotFiniteIsMaskedAndItsRowsComeFromOthersWithTheSameBits) {
  struct Case {
    DType dtype = DType::kBF16;
    bool is_quantized = false;
  };
  for (const Ill ill : {Ill::kAnswersNan, Ill::kAnswersInfinity}) {
    for (const Case& kind : {Case{DType::kF32}, Case{DType::kBF16}, Case{DType::kBF16, true}}) {
      for (const bool is_twice : {false, true}) {
        const Shape shape{.dtype = kind.dtype, .is_quantized = kind.is_quantized};
        const Batch batch = make_batch(shape, 9, Skew::kUniform);
        Job job(shape, is_twice ? placed_twice(shape) : placed_once(shape), ill, 5, /*has_orphans=*/true);
        const std::string expected = job.expected(batch);
        for (int64_t step = 0; step < 3; ++step)
          EXPECT_TRUE(job.step(batch, step) == expected) << dtype_name(kind.dtype) << is_twice << " step " << step;
        EXPECT_EQ(job.state(), WorkerState::kMasked);
        ASSERT_EQ(job.changes.size(), 1U) << "nobody else is blamed";
        EXPECT_EQ(job.changes[0].rank, Rank{2});
        EXPECT_EQ(job.changes[0].reason,
                  "rank 2: its reply for layer 0 of step 1 holds values that are not finite; allowed: finite values for "
                  "finite rows");
        EXPECT_EQ(job.orphans.num_rows == 0, is_twice) << "another holder is asked before this rank computes";
      }
    }
  }
}

TEST(RemoteLoss, WhereBothHoldersAnswerWithNanThisRankComputesTheRowsAndMasksBoth) {
  const Shape shape;
  const Batch batch = make_batch(shape, 9, Skew::kUniform);
  Job job(shape, placed_twice(shape), Ill::kAnswersNan, 5, /*has_orphans=*/true, 9, {}, /*is_third_ill=*/true);
  const std::string expected = job.expected(batch);
  for (int64_t step = 0; step < 3; ++step) EXPECT_TRUE(job.step(batch, step) == expected) << "step " << step;
  EXPECT_EQ(job.dispatcher->workers()[1].state, WorkerState::kMasked);
  EXPECT_EQ(job.dispatcher->workers()[2].state, WorkerState::kMasked);
  EXPECT_EQ(job.dispatcher->workers()[0].state, WorkerState::kHealthy);
}

TEST(RemoteLoss, AFastCombineReplacesSumsThatAreNotFinite) {
  for (const bool is_twice : {false, true}) {
    const Shape shape{.dtype = DType::kF32, .combine = CombineMode::kFast};
    const Batch batch = make_batch(shape, 9, Skew::kUniform);
    Job job(shape, is_twice ? placed_twice(shape) : placed_once(shape), Ill::kAnswersNan, 5, /*has_orphans=*/true);
    const std::string healthy = job.step(batch, 0);
    for (int64_t step = 1; step < 3; ++step) test::expect_close(shape, job.step(batch, step), healthy, "step");
    EXPECT_EQ(job.state(), WorkerState::kMasked);
  }
}

TEST(RemoteLoss, ANanThatNobodyElseCanReplaceIsAnErrorThatNamesTheRank) {
  const Shape shape;
  const Batch batch = make_batch(shape, 9, Skew::kUniform);
  Job job(shape, placed_once(shape), Ill::kAnswersNan, 0, /*has_orphans=*/false);
  test::expect_error([&] { job.step(batch, 0); }, ErrorCode::kInternal,
                     {"rank 2: its reply for layer 0 of step 0", "not finite", "nobody else can compute them"});
}

/// As of a picture, or a weight of this rank, that is not finite: whatever computes such a row gives such a row.
TEST(RemoteLoss, NobodyIsBlamedForATokenThatIsNotFiniteItself) {
  for (const bool is_quantized : {false, true}) {
    const Shape shape{.is_quantized = is_quantized};
    Batch batch = make_batch(shape, 9, Skew::kUniform);
    batch.tokens.view().row<bfloat16>(4)[3] = from_float<bfloat16>(NAN);
    if (is_quantized) batch.codes.scales[4] = NAN;
    Job job(shape, placed_twice(shape), Ill::kNot, 0, /*has_orphans=*/true);
    const std::string expected = job.expected(batch);
    EXPECT_TRUE(job.step(batch, 0) == expected);
    EXPECT_TRUE(job.changes.empty()) << job.changes.front().reason;
    EXPECT_EQ(job.dispatcher->cover_count().by_workers, 0) << "nothing is computed twice for it";
  }
}

/// Weights that are not finite are the checkpoint's fault: each holder computes the same.
TEST(RemoteLoss, NobodyIsBlamedForAnExpertThatIsNotFinite) {
  const Shape shape{.nan_expert = 3};
  const Batch batch = make_batch(shape, 9, Skew::kUniform);
  for (const bool is_twice : {false, true}) {
    Job job(shape, is_twice ? placed_twice(shape) : placed_once(shape), Ill::kNot, 0, /*has_orphans=*/true);
    const std::string expected = job.expected(batch);
    for (int64_t step = 0; step < 2; ++step) EXPECT_TRUE(job.step(batch, step) == expected) << "step " << step;
    EXPECT_TRUE(job.changes.empty()) << job.changes.front().reason;
    EXPECT_EQ(job.dispatcher->workers().healthy(), 0b111U);
  }
}

TEST(RemoteLoss, OnADeviceAReplyIsLookedAtBeforeItGoesThere) {
  const Shape shape{.is_apart = true};
  const Batch batch = make_batch(shape, 9, Skew::kUniform);
  Job job(shape, placed_twice(shape), Ill::kAnswersNan, 1, /*has_orphans=*/true);
  for (int64_t layer = 0; layer < 2; ++layer) {
    job.dispatcher->begin_step(layer);
    EXPECT_TRUE(run(*job.dispatcher, job.parts.stream(), batch, layer) == run_local(shape, batch, layer)) << layer;
  }
  EXPECT_EQ(job.state(), WorkerState::kMasked);
}

TEST(FiniteRows, EveryValueCounts) {
  ThreadPool pool(2);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Matrix rows = test::random_matrix(dtype, 700, 531, 1);  // more than one thread's share
    visit_dtype(dtype, [&]<class T>() {
      T& largest = rows.view().row<T>(5)[5];
      largest = from_float<T>(-3.3895e38F);  // of bf16
      EXPECT_TRUE(are_finite(rows.view(), pool)) << dtype_name(dtype);
      for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
        for (const auto& [row, col] : {std::pair{0, 0}, {17, 530}, {400, 16}, {699, 530}}) {
          T& value = rows.view().row<T>(row)[col];
          const T before = std::exchange(value, from_float<T>(bad));
          EXPECT_FALSE(are_finite(rows.view(), pool)) << dtype_name(dtype) << " row " << row << " column " << col;
          EXPECT_FALSE(is_row_finite(rows.view(), row));
          value = before;
        }
      }
      EXPECT_TRUE(are_finite(rows.view(), pool));
    });
    EXPECT_TRUE(are_finite(rows.view().rows_from(0, 0), pool)) << "no rows";
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
    int64_t step = job.step_until_suspect(batch, expected);
    EXPECT_EQ(job.changes.size(), 1U) << "nobody else is in doubt";
    EXPECT_EQ(job.orphans.num_rows == 0, is_twice);
    EXPECT_TRUE(job.step(batch, step++) == expected) << "it gets nothing new";
    job.let_late_answers_come();
    EXPECT_TRUE(job.step(batch, step++) == expected);
    EXPECT_EQ(job.state(), WorkerState::kHealthy);
    const int answered = job.workers[1]->num_answered();
    for (int i = 0; i < 100 && job.workers[1]->num_answered() == answered; ++i)
      EXPECT_TRUE(job.step(batch, step++) == expected);
    EXPECT_GT(job.workers[1]->num_answered(), answered) << "it gets rows again";
  }
}

/// Its answer comes after it was suspected, but before those whom its rows then go to answer.
TEST(RemoteLoss, AWorkerThatAnswersAheadOfItsCoverIsInDoubtNoLonger) {
  const Shape shape;
  const Batch batch = make_batch(shape, 9, Skew::kUniform);
  Job job(shape, placed_twice(shape), Ill::kIsLate, static_cast<int>(2 * WorkerPace::kMinReplies), /*has_orphans=*/true);
  const std::string expected = job.expected(batch);
  bool was_suspect = false;
  job.on_change = [&](const WorkerChange& change) {
    if (change.rank != Rank{2} || change.to != WorkerState::kSuspect || was_suspect) return;
    was_suspect = true;
    const int before = job.workers[1]->num_answered();
    job.workers[1]->let_answer();
    job.workers[1]->await_answers(before + 1);
  };
  int64_t step = 0;
  while (!was_suspect && step < 20) EXPECT_TRUE(job.step(batch, step++) == expected);
  ASSERT_TRUE(was_suspect);
  EXPECT_TRUE(job.step(batch, step++) == expected);
  EXPECT_EQ(job.state(), WorkerState::kHealthy);
  EXPECT_EQ(job.changes.size(), 2U) << "in doubt, and no longer";
}

/// As after a pause in which this rank stood still: for longer than the timeout nobody has looked.
TEST(RemoteLoss, AnAnswerThatHasComeCountsHoweverLateItIsFound) {
  const Shape shape;
  const Batch batch = make_batch(shape, 9, Skew::kUniform);
  Job job(shape, placed_twice(shape), Ill::kIsLate, static_cast<int>(2 * WorkerPace::kMinReplies), /*has_orphans=*/true);
  const std::string expected = job.expected(batch);
  int64_t step = job.step_until_suspect(batch, expected);
  job.let_late_answers_come();
  job.clock.advance(std::chrono::hours(1));
  EXPECT_TRUE(job.step(batch, step++) == expected);
  EXPECT_NE(job.state(), WorkerState::kMasked);
  for (const WorkerChange& change : job.changes) EXPECT_NE(change.to, WorkerState::kMasked) << change.reason;
}

/// What the dispatching thread records while `act` runs.
template <class Act>
std::vector<SpanRecord> record(Act&& act) {
  recorder().register_thread("test");
  recorder().start({.level = TraceLevel::kSteps});
  act();
  std::vector<SpanRecord> records;
  for (const ThreadCapture& thread : recorder().stop().threads)
    records.insert(records.end(), thread.records.begin(), thread.records.end());
  return records;
}

/// Of the zone and rank 2, or of this rank.
std::vector<SpanRecord> of_zone(const std::vector<SpanRecord>& records, Zone zone, uint32_t b) {
  std::vector<SpanRecord> found;
  std::ranges::copy_if(records, std::back_inserter(found), [&](const SpanRecord& r) { return r.zone == zone && r.b == b; });
  return found;
}

TEST(RemoteLoss, TheTimelineTellsWhatWasWaitedForInVainAndWhatWasComputedHere) {
  for (const Ill ill : {Ill::kIsLate, Ill::kDiesBeforeAnswering}) {
    const Shape shape;
    const Batch batch = make_batch(shape, 9, Skew::kUniform);
    const int at = ill == Ill::kIsLate ? static_cast<int>(2 * WorkerPace::kMinReplies) : 1;
    Job job(shape, placed_once(shape), ill, at, /*has_orphans=*/true);
    const std::vector<SpanRecord> records = record([&] {
      for (int64_t step = 0; job.state() == WorkerState::kHealthy && step < 40; ++step) job.step(batch, step);
    });
    ASSERT_NE(job.state(), WorkerState::kHealthy);
    const std::vector<SpanRecord> here = of_zone(records, Zone::kCoveredRows, 0);
    ASSERT_FALSE(here.empty());
    int64_t num_rows = 0;
    for (const SpanRecord& covered : here) {
      EXPECT_LT(covered.begin, covered.end) << "it tells how long that took";
      num_rows += covered.a;
    }
    EXPECT_EQ(num_rows, job.orphans.num_rows);
    const std::vector<SpanRecord> waits = of_zone(records, Zone::kWaitCombine, 2);
    const auto answers = of_zone(records, Zone::kCombineReceive, 2);
    EXPECT_GT(waits.size(), answers.size()) << "one at least got no answer";
    for (std::size_t i = 1; i < waits.size(); ++i) EXPECT_LE(waits[i - 1].end, waits[i].begin) << "none counts twice";
    EXPECT_TRUE(std::ranges::any_of(waits, [&](const SpanRecord& wait) { return wait.end <= here.front().begin; }));
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

TEST(RemoteChange, ANewWorkerInALostOnesSeatTakesItsExpertsOver) {
  for (const CombineMode combine : {CombineMode::kExact, CombineMode::kFast}) {
    const Shape shape{.dtype = DType::kF32, .combine = combine};
    const Batch batch = make_batch(shape, 9, Skew::kUniform);
    Job job(shape, placed_once(shape), Ill::kDiesBeforeAnswering, 2, /*has_orphans=*/true, 9,
            {placed_by_count(shape, 2, {2, 3, 3})});
    const auto expect_right = [&](int64_t step) {
      const std::string got = job.step(batch, step);
      if (combine == CombineMode::kExact) {
        EXPECT_TRUE(got == job.expected(batch)) << "step " << step;
      } else {
        test::expect_close(shape, got, job.expected(batch), "step " + std::to_string(step));
      }
    };
    expect_right(0);
    expect_right(1);
    EXPECT_EQ(job.state(), WorkerState::kMasked);
    job.dispatcher->retire(1, "its experts are elsewhere");
    EXPECT_EQ(job.state(), WorkerState::kGone);
    job.links[1].reset();  // nobody looks at it any more
    expect_right(2);
    const int64_t computed_here = job.orphans.num_rows;
    EXPECT_GT(computed_here, 0);
    job.assign(2, {job.links[0].get(), job.let_come(1), job.links[2].get()});
    expect_right(3);
    expect_right(4);
    EXPECT_EQ(job.state(), WorkerState::kHealthy);
    EXPECT_EQ(job.orphans.num_rows, computed_here) << "nothing is left to compute here";
    EXPECT_GT(job.workers[3]->num_answered(), 0);
  }
}

TEST(RemoteChange, MoreAndFewerWorkersComputeTheSameBits) {
  for (const bool is_quantized : {false, true}) {
    const Shape shape{.is_quantized = is_quantized};
    const Batch batch = make_batch(shape, 9, Skew::kUniform);
    Job job(shape, placed_once(shape), Ill::kNot, 0, /*has_orphans=*/false, 9,
            {placed_by_count(shape, 2, {2, 2, 2, 2}), placed_by_count(shape, 3, {0, 2, 3, 3}),
             placed_by_count(shape, 4, {0, 0, 0, 8})});
    const std::string expected = job.expected(batch);
    EXPECT_TRUE(job.step(batch, 0) == expected);
    std::vector<Link*> seats{job.links[0].get(), job.links[1].get(), job.links[2].get()};
    seats.push_back(job.let_come(3));
    job.assign(2, seats);
    EXPECT_TRUE(job.step(batch, 1) == expected) << "one more";
    const auto rows_of = [&](std::size_t worker) { return job.dispatcher->expert_load().rank_rows(0).at(worker); };
    EXPECT_GT(rows_of(3), 0);

    job.dispatcher->workers().let_leave(0);
    const int64_t rows_before = rows_of(0);
    EXPECT_TRUE(job.step(batch, 2) == expected) << "while it leaves";
    const int64_t rows_then = rows_of(0);
    EXPECT_GT(rows_then, rows_before) << "who leaves gets rows of its experts";
    seats[0] = nullptr;
    job.dispatcher->retire(0, "left");
    job.assign(3, seats);
    EXPECT_TRUE(job.step(batch, 3) == expected) << "one less";
    EXPECT_EQ(rows_of(0), rows_then) << "it gets nothing any more";

    job.assign(4, {nullptr, nullptr, nullptr, seats[3]});
    EXPECT_TRUE(job.step(batch, 4) == expected) << "all on the last one";
    EXPECT_EQ(job.dispatcher->workers().healthy(), 0b1000U);
  }
}

TEST(RemoteChange, ALateAnswerOfWhoeverSatThereIsDropped) {
  for (const bool is_retired : {false, true}) {
    const Shape shape;
    const Batch batch = make_batch(shape, 9, Skew::kUniform);
    const int at = static_cast<int>(2 * WorkerPace::kMinReplies);
    Job job(shape, placed_once(shape), Ill::kIsLate, at, /*has_orphans=*/true, 9, {placed_by_count(shape, 2, {2, 3, 3})});
    const std::string expected = job.expected(batch);
    int64_t step = job.step_until_suspect(batch, expected);
    job.let_late_answers_come();
    job.dispatcher->workers().lose(1, Error(ErrorCode::kUnavailable, "replaced"));
    if (is_retired) {
      job.dispatcher->retire(1, "replaced");
      job.links[1].reset();
    }
    job.assign(2, {job.links[0].get(), job.let_come(1), job.links[2].get()});
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(job.step(batch, step++) == expected);
    EXPECT_EQ(job.state(), WorkerState::kHealthy);
    EXPECT_EQ(job.dispatcher->workers()[1].num_late, 0) << "what the one before owed is not the new one's";
    EXPECT_GT(job.workers[3]->num_answered(), 0);
  }
}

}  // namespace
}  // namespace ferry
