#include "runtime/expert_server.h"

#include <gtest/gtest.h>

#include "moe/assignment.h"
#include "moe/wire.h"
#include "tests/comm/link_pair.h"
#include "tests/support/in_good_time.h"
#include "tests/support/source_folder.h"

// How conversations of a worker end.

namespace ferry {
namespace {

EngineOptions server_options() {
  EngineOptions options;
  options.model = test::source_folder() / "launch/demo";
  options.dtype = DType::kBF16;
  options.device.kind = DeviceChoice::Kind::kCpu;
  options.threads = 1;
  options.token_budget = 64;
  return options;
}

void say(Link& link, std::span<const std::byte> message) { link.wait(*link.isend(message, kRequestTag), test::in_good_time()); }

/// A coordinator and a worker that is always at making an assignment ready, of which it gives signs of life.
struct BusyWorker {
  BusyWorker() {
    holder.begin_anew();
    server.begin(Rank{1}, *links.far, holder);
    const RankExperts experts(static_cast<std::size_t>(shelf.num_layers()), {{0}, {1}});
    say(*links.near, encode_assignment({.epoch = 2, .experts = experts, .canaries = RankExperts(experts.size())}));
  }

  StreamHub coordinator, hub;
  LinkPair links{coordinator, Rank{1}, hub, Rank{0}};
  ExpertShelf shelf{server_options(), {.rank = Rank{1}, .works_now = [] { return false; }}};
  ExpertHolder holder{shelf};
  ExpertServer server{shelf, hub, {.peer_timeout = kTestLimit}};
};

TEST(ExpertServer, AGoodbyeCountsThoughNothingCanBeSentAnyMore) {
  BusyWorker worker;
  std::array<std::byte, sizeof(WireHeader)> goodbye{};
  write_header({.kind = WireKind::kShutDown, .map_epoch = 1}, goodbye);
  say(*worker.links.near, goodbye);
  worker.links.near.reset();
  const std::optional<ExpertServer::Ended> ended = worker.server.serve(test::in_good_time());
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->source, worker.links.far.get());
  EXPECT_FALSE(ended->error) << ended->error->what();
  EXPECT_FALSE(worker.server.has_conversations());
}

/// Of two coordinators one is gone before this rank is ready.
TEST(ExpertServer, WhoIsGoneBeforeItBeginsEndsItsOwnConversationAlone) {
  StreamHub good_one, lost_one, hub;
  const LinkPair good{good_one, Rank{1}, hub, Rank{0}};
  LinkPair lost{lost_one, Rank{1}, hub, Rank{1}};
  ExpertShelf shelf(server_options(), {.rank = Rank{1}, .works_now = [] { return false; }});
  ExpertHolder for_good(shelf), for_lost(shelf);
  ExpertServer server(shelf, hub, {.peer_timeout = kTestLimit});
  lost.far->fail("it died");
  server.begin(Rank{1}, *lost.far, for_lost);
  server.begin(Rank{1}, *good.far, for_good);
  const std::optional<ExpertServer::Ended> ended = server.serve(test::in_good_time());
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->source, lost.far.get());
  ASSERT_TRUE(ended->error);
  EXPECT_EQ(ended->error->code(), ErrorCode::kUnavailable);
  std::array<std::byte, sizeof(WireHeader)> goodbye{};
  write_header({.kind = WireKind::kShutDown, .map_epoch = 1}, goodbye);
  say(*good.near, goodbye);
  EXPECT_FALSE(server.serve(test::in_good_time())->error) << "the other one is served on";
}

TEST(ExpertServer, WhoSendsWhatCannotBeReadEndsItsOwnConversationAlone) {
  for (const int32_t layer : {-7, 1 << 30, 0}) {
    StreamHub good_one, bad_one, hub;
    const LinkPair good{good_one, Rank{1}, hub, Rank{0}}, bad{bad_one, Rank{1}, hub, Rank{1}};
    ExpertShelf shelf(server_options(), {.rank = Rank{1}, .works_now = [] { return false; }});
    ExpertHolder for_good(shelf), for_bad(shelf);
    ExpertServer server(shelf, hub, {.peer_timeout = kTestLimit, .wait_to_merge = WaitToMerge::kAlways});
    const RankExperts experts(static_cast<std::size_t>(shelf.num_layers()), {{0}, {1}});
    for (ExpertHolder* holder : {&for_good, &for_bad})
      holder->hold({.epoch = 0, .experts = experts, .canaries = RankExperts(experts.size())});
    server.begin(Rank{1}, *good.far, for_good);
    server.begin(Rank{1}, *bad.far, for_bad);
    for (int64_t step = 0; step < 3; ++step) {
      std::array<std::byte, sizeof(WireHeader)> rows{};
      write_header({.kind = WireKind::kRows, .step = step, .layer = layer, .num_tokens = -5}, rows);
      say(*bad.near, rows);
    }
    const std::optional<ExpertServer::Ended> ended = server.serve(test::in_good_time());
    ASSERT_TRUE(ended && ended->error);
    EXPECT_EQ(ended->source, bad.far.get());
    EXPECT_NE(std::string(ended->error->what()).find("rank 1"), std::string::npos) << ended->error->what();
    EXPECT_TRUE(server.has_conversations());
  }
}

TEST(ExpertServer, ALinkThatEndsWithoutAGoodbyeIsAnErrorThatNamesTheCoordinator) {
  BusyWorker worker;
  worker.links.near->fail("it has had enough");
  const std::optional<ExpertServer::Ended> ended = worker.server.serve(test::in_good_time());
  ASSERT_TRUE(ended && ended->error);
  EXPECT_EQ(ended->error->code(), ErrorCode::kUnavailable);
  EXPECT_NE(std::string(ended->error->what()).find("rank 0"), std::string::npos) << ended->error->what();
}

}  // namespace
}  // namespace ferry
