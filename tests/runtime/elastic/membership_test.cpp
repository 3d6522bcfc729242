#include "runtime/elastic/membership.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "kernels/backend.h"
#include "moe/given_placement.h"
#include "runtime/worker_record.h"
#include "tests/moe/moe_cases.h"
#include "tests/runtime/elastic/scripted_workers.h"
#include "tests/support/expect_error.h"

// Placements that are set by hand, as Membership brings them about with workers that answer as a test says.

namespace ferry {
namespace {

using test::ScriptedHub;
using test::ScriptedLink;

constexpr int64_t kHandLayers = 4, kHandExperts = 4;
constexpr std::chrono::milliseconds kNoTime{0};

const LayerPlacement kSwapped{{{2}, {3}}, {{0}, {1}}};

/// The same of every layer.
template <class T>
std::vector<T> in_all_layers(const std::vector<T>& layer) {
  std::vector<T> all;
  for (int64_t l = 0; l < kHandLayers; ++l) all.insert(all.end(), layer.begin(), layer.end());
  return all;
}

/// Two workers, with experts 0 and 1 on the first one and 2 and 3 on the second; each expert of all layers alike.
struct HandJob {
  explicit HandJob(int64_t rebalance_steps = 0, bool is_group = false, CanaryWitness* witness = nullptr) {
    hub.is_group = is_group;
    std::vector<std::unique_ptr<Link>> watched;
    std::vector<Link*> links;
    for (ScriptedLink& worker : workers) {
      watched.push_back(watch.watch(worker));
      links.push_back(watched.back().get());
    }
    const auto placement = ExpertPlacement::contiguous(kHandLayers, kHandExperts, worker_ranks(2));
    dispatcher.emplace(watch, placement, links, nullptr, stream,
                       RemoteTokenDispatcher::Options{.hidden_dim = 8, .max_tokens = 1, .top_k = 1, .dtype = DType::kF32},
                       [this](const WorkerChange& change) { record.note(change); });
    membership.emplace(*dispatcher, watch, std::move(watched),
                       Membership::Options{.redundancy = {},
                                           .loads = [this] { return loads(); },
                                           .may_drop_links = [] { return true; },
                                           .on_placement = [this] { ++num_changes; },
                                           .witness = witness,
                                           .rebalance_steps = rebalance_steps},
                       [this](const WorkerChange& change) { record.note(change); });
  }

  /// Expert 0 and 1 have nearly all of the rows.
  static ExpertLoads loads() {
    return {.num_layers = kHandLayers,
            .num_experts = kHandExperts,
            .num_steps = 1,
            .rows = in_all_layers<double>({90, 90, 1, 1}),
            .touched = in_all_layers<double>({1, 1, 1, 1})};
  }

  std::shared_ptr<PlacementOrder> set(const LayerPlacement& layer, uint32_t epoch = 0, std::function<bool()> is_given_up = {}) {
    auto order = std::make_shared<PlacementOrder>(std::move(is_given_up));
    membership->set_placement(in_all_layers<LayerPlacement>({layer}), epoch, order);
    return order;
  }
  void tend(int times = 1) {
    for (; times > 0; --times) {
      hub.time += std::chrono::milliseconds(10);
      membership->begin_step();
    }
  }
  void pass(Deadline::duration time) {
    hub.time += time;
    membership->begin_step();
  }
  /// The worker has made ready what it was told last, and all experts sing the same.
  void prepare(std::size_t worker, const std::string& complaint = "") {
    const std::optional<Assignment> told = workers[worker].told(kHandLayers, kHandExperts);
    ASSERT_TRUE(told);
    Preparation preparation{.epoch = told->epoch, .canaries = {}, .complaint = complaint};
    for (const auto& layer : told->canaries) preparation.canaries.resize(preparation.canaries.size() + layer.size(), 7);
    workers[worker].say(encode_preparation(preparation));
  }
  void prepare_all() {
    for (std::size_t w = 0; w < workers.size(); ++w) prepare(w);
    tend();
  }
  LayerPlacement placed() const { return dispatcher->placement().experts(kHandLayers - 1); }
  uint32_t epoch() const { return dispatcher->placement().epoch(); }

  ScriptedHub hub;
  Progress progress;
  WatchedLinks watch{hub, progress};
  std::array<ScriptedLink, 2> workers{ScriptedLink(Rank{1}), ScriptedLink(Rank{2})};
  ThreadPool pool{1};
  Backend backend = select_backend("auto", "auto", DType::kF32);
  Stream stream{backend, pool};
  std::optional<RemoteTokenDispatcher> dispatcher;
  std::optional<Membership> membership;
  int num_changes = 0;
  WorkerRecord record;
};

/// Lets in whom a test says.
class ScriptedDoor final : public Door {
 public:
  void let_in(Guest guest) { guests_.push_back(std::move(guest)); }

  const std::string& address() const override { return address_; }
  std::vector<Guest> take() override { return std::exchange(guests_, {}); }
  void free_seat(Rank /*rank*/) override {}

 private:
  const std::string address_ = "here";
  std::vector<Guest> guests_;
};

/// Returns how worker `rank` stands, as the live view shows it.
WorkerSight sight_of(const HandJob& job, int32_t rank) {
  for (const WorkerSight& sight : job.record.report().workers) {
    if (sight.rank == rank) return sight;
  }
  return {};
}

TEST(Membership, WhoJoinsIsSeenWithItsHomeAndWhoDiesWithTheReason) {
  HandJob job;
  auto opened = std::make_unique<ScriptedDoor>();
  ScriptedDoor& door = *opened;
  job.membership->open(std::move(opened));
  auto link = std::make_unique<ScriptedLink>(Rank{3});
  ScriptedLink& third = *link;
  door.let_in({.rank = Rank{3}, .link = std::move(link), .home = {.host = "node3", .address = "10.0.0.3:4711"}});
  job.tend(2);
  EXPECT_EQ(sight_of(job, 3).state, WorkerState::kJoining);
  EXPECT_EQ(sight_of(job, 3).home.host, "node3");
  EXPECT_EQ(sight_of(job, 3).home.address, "10.0.0.3:4711");
  third.fail("it died on the way");
  job.tend();
  EXPECT_EQ(sight_of(job, 3).state, WorkerState::kGone);
  EXPECT_TRUE(sight_of(job, 3).is_lost);
  EXPECT_NE(sight_of(job, 3).reason.find("it died on the way"), std::string::npos) << sight_of(job, 3).reason;

  job.workers[1].fail("it dies");
  job.tend(2);
  EXPECT_EQ(sight_of(job, 2).state, WorkerState::kMasked);
  EXPECT_TRUE(sight_of(job, 2).is_lost);
  job.prepare(0);
  job.tend();
  EXPECT_EQ(sight_of(job, 2).state, WorkerState::kGone);
  EXPECT_TRUE(sight_of(job, 2).is_lost);
  EXPECT_EQ(sight_of(job, 2).reason, "it dies; its experts are others' now");
  EXPECT_FALSE(sight_of(job, 1).is_lost);
}

void expect_failed(PlacementOrder& order, ErrorCode code, const std::vector<std::string>& parts) {
  test::expect_error([&] { order.wait_for(kNoTime); }, code, parts);
}

TEST(SetByHand, StepsRunByItWhenAllWorkersAreReady) {
  HandJob job;
  const LayerPlacement first = job.placed();
  const auto order = job.set(kSwapped, job.epoch());
  for (std::size_t w = 0; w < 2; ++w) {
    EXPECT_EQ(job.workers[w].told(kHandLayers, kHandExperts)->experts, RankExperts(kHandLayers, kSwapped[w]));
    EXPECT_EQ(job.workers[w].told(kHandLayers, kHandExperts)->canaries[0].size(), 4U) << "what is read and what was had";
  }
  job.prepare(0);
  job.tend(3);
  EXPECT_FALSE(order->wait_for(kNoTime)) << "one is not ready";
  EXPECT_EQ(job.placed(), first);
  EXPECT_TRUE(job.membership->is_busy());
  job.prepare(1);
  job.tend();
  EXPECT_EQ(order->wait_for(kNoTime), job.epoch());
  EXPECT_EQ(job.placed(), kSwapped);
  EXPECT_TRUE(job.membership->is_set_by_hand());
  EXPECT_EQ(job.num_changes, 1);
  EXPECT_FALSE(job.membership->is_busy());
}

TEST(SetByHand, AWorkerMayGetNothingAndAnExpertTwoHolders) {
  HandJob job;
  const LayerPlacement all{{{0}, {1}, {2}, {3}}, {}};
  auto order = job.set(all);
  job.prepare_all();
  EXPECT_TRUE(order->wait_for(kNoTime));
  EXPECT_EQ(job.placed(), all);
  const LayerPlacement twice{{{0}, {1}, {2}, {3}}, {{3}, {0}}};
  order = job.set(twice);
  job.prepare_all();
  EXPECT_TRUE(order->wait_for(kNoTime));
  EXPECT_EQ(job.placed(), twice);
}

TEST(SetByHand, BalanceLeavesItAloneUntilAWorkerGoes) {
  HandJob job(/*rebalance_steps=*/2);
  job.tend(3);
  EXPECT_TRUE(job.membership->is_busy()) << "the loads are uneven: without a hand they are balanced";
  const LayerPlacement uneven{{{0}, {1}, {2}}, {{3}}};
  const auto order = job.set(uneven);  // in the place of what moves for balance
  job.prepare_all();
  EXPECT_TRUE(order->wait_for(kNoTime));
  job.tend(20);
  EXPECT_FALSE(job.membership->is_busy());
  EXPECT_EQ(job.placed(), uneven);
  EXPECT_TRUE(job.membership->is_set_by_hand());
  job.workers[1].fail("it dies");
  job.tend(2);
  job.prepare(0);
  job.tend();
  EXPECT_EQ(job.placed(), (LayerPlacement{{{0}, {1}, {2}, {3}}, {}}));
  EXPECT_FALSE(job.membership->is_set_by_hand());
}

TEST(SetByHand, AWorkerThatCannotHoldItIsARefusalAndAllGoBack) {
  HandJob job;
  const LayerPlacement first = job.placed();
  const auto order = job.set(kSwapped);
  job.prepare(0);
  job.prepare(1, "no memory for 2 more experts");
  job.tend(2);
  expect_failed(*order, ErrorCode::kFailedPrecondition, {"rank 2 cannot hold", "no memory for 2 more experts"});
  EXPECT_EQ(job.placed(), first);
  EXPECT_FALSE(job.membership->is_set_by_hand());
  EXPECT_EQ(job.workers[0].told(kHandLayers, kHandExperts)->experts, RankExperts(kHandLayers, first[0])) << "what it holds";
  job.prepare_all();
  EXPECT_EQ(job.placed(), first);
  EXPECT_FALSE(job.membership->is_busy());
  const auto again = job.set(kSwapped);
  job.prepare_all();
  EXPECT_TRUE(again->wait_for(kNoTime)) << "the worker has stayed, and is not held to what it holds";
}

TEST(SetByHand, GivenUpWorkersGoBackAndWhatStoodStays) {
  HandJob job;
  const LayerPlacement uneven{{{0}, {1}, {2}}, {{3}}};
  job.set(uneven);
  job.prepare_all();
  const auto order = job.set(kSwapped);
  job.membership->give_up(*order);
  expect_failed(*order, ErrorCode::kCancelled, {"given it up"});
  EXPECT_TRUE(job.membership->is_busy());
  job.tend();
  job.prepare_all();
  EXPECT_EQ(job.placed(), uneven);
  EXPECT_TRUE(job.membership->is_set_by_hand());
  job.membership->give_up(*order);  // it has been settled
  EXPECT_FALSE(job.membership->is_busy());
}

TEST(SetByHand, ACallerThatGoesAtTheLastMomentIsAskedBeforeStepsRunByIt) {
  for (const bool has_gone : {true, false}) {
    HandJob job;
    const LayerPlacement first = job.placed();
    bool is_given_up = false;
    const std::shared_ptr<PlacementOrder> order = job.set(kSwapped, 0, [&] { return is_given_up; });
    job.tend();
    is_given_up = has_gone;  // nobody has looked since
    job.prepare_all();
    if (has_gone) {
      expect_failed(*order, ErrorCode::kCancelled, {"given it up"});
      EXPECT_EQ(job.placed(), first);
    } else {
      EXPECT_TRUE(order->wait_for(kNoTime));
      EXPECT_NE(job.placed(), first);
    }
  }
}

TEST(SetByHand, WhenAllLeaveMeanwhileTheyAreGoneAndNotLost) {
  HandJob job;
  const auto order = job.set(kSwapped);
  std::vector<std::byte> leave(sizeof(WireHeader));
  write_header({.kind = WireKind::kLeave, .map_epoch = job.epoch()}, leave);
  for (ScriptedLink& worker : job.workers) worker.say(leave);
  job.tend(5);
  expect_failed(*order, ErrorCode::kAborted, {"has left meanwhile"});
  const WorkerSeats& seats = job.dispatcher->workers();
  for (int32_t w = 0; w < 2; ++w) EXPECT_EQ(seats[w].state, WorkerState::kGone) << worker_state_name(seats[w].state);
  EXPECT_FALSE(seats.misses_some());
  EXPECT_FALSE(job.membership->is_busy());
}

TEST(SetByHand, ADeathMeanwhileAbortsIt) {
  HandJob job;
  const auto order = job.set(kSwapped);
  job.workers[1].fail("it dies");
  job.tend();
  expect_failed(*order, ErrorCode::kAborted, {"rank 2 was lost meanwhile", "it dies"});
  job.tend();
  job.prepare(0);
  job.tend();
  EXPECT_EQ(job.placed()[0].size(), 4U) << "the other one has all";
}

TEST(SetByHand, AWorkerIsWaitedForWhileItGivesSignsOfLife) {
  HandJob job;
  const auto order = job.set(kSwapped);
  job.prepare(0);
  std::vector<std::byte> alive(sizeof(WireHeader));
  write_header({.kind = WireKind::kKeepAlive, .map_epoch = job.epoch()}, alive);
  for (int times = 0; times < 5; ++times) {
    job.workers[1].say(alive);
    job.tend();
    job.pass(std::chrono::seconds(29));  // a worker may be silent for 30
  }
  EXPECT_FALSE(order->wait_for(kNoTime)) << "it still reads";
  EXPECT_FALSE(job.workers[1].failure());
  job.pass(std::chrono::seconds(2));
  expect_failed(*order, ErrorCode::kAborted,
                {"rank 2 was lost meanwhile", "no sign of life for 31 s while it was to read experts"});
  EXPECT_TRUE(job.workers[1].failure()) << "its link has ended";
  EXPECT_FALSE(job.workers[0].failure()) << "a worker that is ready need not say more";
}

TEST(SetByHand, WhatIsInTheWayIsSaid) {
  HandJob job;
  const auto refused = [&](const LayerPlacement& layer, ErrorCode code, const std::vector<std::string>& parts,
                           uint32_t epoch = 0) { test::expect_error([&] { job.set(layer, epoch); }, code, parts); };
  refused({{{0}}, {}, {{1}, {2}, {3}}}, ErrorCode::kInvalidArgument,
          {"layer 0: experts on rank 3", "that get rows and stay: 1, 2"});
  refused(kSwapped, ErrorCode::kAborted, {"of epoch 9", "of epoch 1"}, 9);
  const auto order = job.set(kSwapped);
  refused(kSwapped, ErrorCode::kAborted, {"another placement"});
  job.membership->give_up(*order);
  job.workers[1].fail("it dies");
  refused(kSwapped, ErrorCode::kAborted, {"workers that come or go"});
  job.tend();
  refused(kSwapped, ErrorCode::kAborted, {"workers that come or go"});
  HandJob group(0, /*is_group=*/true);
  test::expect_error([&] { group.set(kSwapped); }, ErrorCode::kFailedPrecondition, {"mpi", "allowed: ranks over sockets"});
}

TEST(SetByHand, WhoHasLeftSinceTheMapWasReadAbortsAndWhoNeverWasIsInvalid) {
  HandJob job;
  const LayerPlacement idle{{{0}, {1}, {2}, {3}}, {}}, stranger{{{0}, {1}}, {}, {{2}, {3}}};
  const auto order = job.set(idle);
  job.prepare_all();
  EXPECT_TRUE(order->wait_for(kNoTime));
  const uint32_t read = job.epoch();
  job.workers[1].fail("it dies");  // with nothing that others should have, so no placement changes
  job.tend(3);
  EXPECT_FALSE(job.membership->is_busy());
  EXPECT_EQ(job.epoch(), read);
  const auto refused = [&](const LayerPlacement& layer, ErrorCode code, const std::vector<std::string>& parts, uint32_t epoch) {
    test::expect_error([&] { job.set(layer, epoch); }, code, parts);
  };
  refused(kSwapped, ErrorCode::kAborted, {"layer 0: experts on rank 2", "has left since", "there are 1"}, read);
  refused(kSwapped, ErrorCode::kInvalidArgument, {"experts on rank 2", "get rows and stay: 1"}, 0);
  refused(stranger, ErrorCode::kInvalidArgument, {"experts on rank 3", "get rows and stay: 1"}, read);
  const auto again = job.set({{{3}, {2}, {1}, {0}}}, read);
  job.prepare(0);
  job.tend();
  EXPECT_TRUE(again->wait_for(kNoTime)) << "whoever reads the map anew knows";
  refused(kSwapped, ErrorCode::kInvalidArgument, {"experts on rank 2"}, job.epoch());
}

TEST(SetByHand, TheLastWorkerThatLeavesAbortsToo) {
  HandJob job;
  const uint32_t read = job.epoch();
  for (ScriptedLink& worker : job.workers) worker.fail("it dies");
  job.tend(3);
  EXPECT_EQ(job.epoch(), read) << "nobody is there to take its experts";
  test::expect_error([&] { job.set(kSwapped, read); }, ErrorCode::kAborted, {"rank 1", "has left since", "no worker is there"});
}

TEST(SetByHand, AnOrderIsSettledAtTheEnd) {
  HandJob job;
  const auto order = job.set(kSwapped);
  job.membership.reset();
  expect_failed(*order, ErrorCode::kUnavailable, {"stops"});
}

/// Sings when it is told to.
class ScriptedWitness final : public CanaryWitness {
 public:
  std::vector<ExpertKey> asked;
  std::vector<Song> songs;
  bool has_sung = false;

  uint64_t voice() const override { return 0; }
  void begin(std::vector<ExpertKey> experts) override { asked = std::move(experts); }
  std::vector<Song> take() override { return std::exchange(songs, {}); }
  bool is_over() const override { return has_sung || asked.empty(); }
  void give_up() override { asked.clear(); }
  void sing(uint64_t canary) {
    for (const ExpertKey& key : asked) songs.push_back({key, canary});
    has_sung = true;
  }
};

/// Rank 2 has died with experts that nobody else has, and rank 1 is ready to hold them.
struct LonelyJob {
  LonelyJob() {
    job.workers[1].fail("it dies");
    job.tend(2);
    job.prepare(0);
    job.tend();
  }
  bool has_moved() const { return job.placed()[0].size() == static_cast<std::size_t>(kHandExperts); }

  ScriptedWitness witness;
  HandJob job{0, false, &witness};
};

TEST(Witness, WorkersThatAreReadyWaitForItAndGoOverWhenItAgrees) {
  LonelyJob lonely;
  std::vector<ExpertKey> asked;  // what rank 1 reads
  for (int64_t layer = 0; layer < kHandLayers; ++layer) asked.insert(asked.end(), {{layer, 2}, {layer, 3}});
  EXPECT_EQ(lonely.witness.asked, asked);
  EXPECT_FALSE(lonely.has_moved());
  lonely.witness.sing(7);
  lonely.job.tend();
  EXPECT_TRUE(lonely.has_moved());
}

TEST(Witness, IsNotWaitedForForLong) {
  LonelyJob lonely;
  lonely.job.tend(50);
  EXPECT_FALSE(lonely.has_moved());
  lonely.job.tend(60);  // a second is over
  EXPECT_TRUE(lonely.has_moved());
  EXPECT_TRUE(lonely.witness.asked.empty()) << "it was given up";
}

TEST(Witness, WhoHasReadSomethingElseGetsNothingOfIt) {
  LonelyJob lonely;
  for (const ExpertKey& key : lonely.witness.asked) lonely.witness.songs.push_back({key, key == ExpertKey{1, 3} ? 8U : 7U});
  lonely.witness.has_sung = true;
  lonely.job.tend(3);
  EXPECT_FALSE(lonely.has_moved());
  EXPECT_FALSE(lonely.job.workers[0].failure()) << "it stays with what it has";
  EXPECT_EQ(lonely.job.placed()[0].size(), 2U);
}

}  // namespace
}  // namespace ferry
