#include "runtime/server/live/live_status.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "profiler/recent_activity.h"
#include "runtime/base/error.h"
#include "runtime/server/http/call.h"
#include "runtime/server/http/router.h"
#include "runtime/server/live/live_json.h"
#include "runtime/server/live/live_routes.h"
#include "tests/support/sample_report.h"

namespace ferry {
namespace {

using nlohmann::json;

LiveStatus sample_status() {
  EngineReport report = test::sample_report();
  report.model.name = "demo";
  report.model.num_expert_workers = 2;
  report.model.num_experts = 64;
  report.load.requests[static_cast<std::size_t>(RequestState::kDecoding)] = 3;
  RecentActivity recent{.window_s = 5};
  recent.by_phase[static_cast<std::size_t>(Phase::kDecode)] = {.steps = 10, .rows = 30, .sequences = 20, .seconds = 1.5};
  recent.peers = {{.rank = 2, .exchanges = 8, .rows = 16, .bytes_out = 100, .bytes_in = 200, .wait_s = 0.5}};
  const std::vector<OpenRequestSight> oldest = {
      {.number = 12, .state = RequestState::kWaitingForMedia, .age_s = 2.5, .prompt_tokens = 40}};
  return make_live_status(report, oldest, recent, {.time = 1e9, .uptime_s = 60, .complaint = "it drains"});
}

/// What a route answers.
HttpResponse ask(const HttpRoute& route) {
  if (route.blocking) return route.blocking({});
  const auto call = std::make_shared<HttpCall>(HttpCallForm{}, [] {});
  route.handler({}, HttpReply(call));
  std::string bytes;
  return call->take(bytes).response.value();
}

TEST(LiveStatus, TakesOverWhatTheEngineTells) {
  const LiveStatus status = sample_status();
  EXPECT_EQ(status.server.ranks, 3);
  EXPECT_EQ(status.server.complaint, "it drains");
  EXPECT_EQ(status.requests.by_state.at("decoding"), 3);
  EXPECT_EQ(status.requests.by_state.count("finished"), 0U) << "nobody is open who has ended";
  EXPECT_EQ(status.requests.finished.at("abort"), 1);
  EXPECT_EQ(status.requests.oldest.front().state, "waiting_for_media");
  EXPECT_EQ(status.tokens.cached, 30);
  EXPECT_EQ(status.steps.drafts_tried, 2);
  EXPECT_EQ(status.steps.drafts_right, 1);
  EXPECT_EQ(status.recent.phases.at(static_cast<std::size_t>(Phase::kDecode)).rows, 30);
  EXPECT_EQ(status.cache.misses.at("salt"), 5);
  EXPECT_EQ(status.seconds.first_token.counts.size(), status.seconds.first_token.bounds.size() + 1);
}

TEST(LiveStatus, TellsOfTheArchiveWhereThereIsOne) {
  const LiveStatus::Archive archive = sample_status().archive;
  EXPECT_TRUE(archive.is_on);
  EXPECT_EQ(archive.steps, 31);
  EXPECT_EQ(archive.bytes, 32);
  EXPECT_EQ(archive.left_out, 33);
  ASSERT_EQ(archive.drift.size(), static_cast<std::size_t>(kNumPhases));
  const LiveStatus::Drift& decode = archive.drift[static_cast<std::size_t>(Phase::kDecode)];
  EXPECT_EQ(decode.phase, "decode");
  EXPECT_EQ(decode.median_ratio, 1.5);
  EXPECT_EQ(decode.p99_ratio, 2.5);
  EXPECT_TRUE(decode.is_alarmed);
  EngineReport report = test::sample_report();
  report.archive.reset();
  EXPECT_FALSE(make_live_status(report, {}, {}, {}).archive.is_on);
}

TEST(LiveStatus, HasEveryWorker) {
  const std::vector<LiveStatus::Rank> ranks = sample_status().ranks;
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0].rank, 1);
  EXPECT_EQ(ranks[0].rows, 0) << "one that had none of late is there all the same";
  EXPECT_EQ(ranks[1].rows, 16);
}

/// As an elastic coordinator notes it, which begins alone.
TEST(LiveStatus, HasWorkersThatJoinedLaterAndTellsWhyOneDied) {
  WorkerRecord record;
  EngineReport report = test::sample_report();
  const auto look = [&] {
    report.workers = record.report();
    return make_live_status(report, {}, {}, {});
  };
  EXPECT_EQ(look().server.ranks, 1);
  EXPECT_TRUE(look().ranks.empty()) << "nobody has come yet";
  for (const int32_t rank : {1, 2, 3}) {
    const std::string number = std::to_string(rank);
    record.note({.rank = {rank},
                 .from = WorkerState::kGone,
                 .to = WorkerState::kJoining,
                 .reason = "it has come",
                 .home = {"node" + number, "10.0.0." + number + ":4711"}});
    record.note({.rank = {rank}, .to = WorkerState::kHealthy});
  }
  record.note({.rank = {2}, .to = WorkerState::kMasked, .reason = "rank 2: it died", .is_lost = true});
  EXPECT_EQ(look().server.ranks, 4) << "it is still missed";
  record.note(
      {.rank = {2}, .to = WorkerState::kGone, .reason = "rank 2: it died; its experts are others' now", .is_lost = true});
  record.note({.rank = {3}, .to = WorkerState::kGone, .reason = "has left"});
  const LiveStatus status = look();
  EXPECT_EQ(status.server.ranks, 2);
  ASSERT_EQ(status.ranks.size(), 3U);
  EXPECT_EQ(status.ranks[0].host, "node1");
  EXPECT_EQ(status.ranks[0].address, "10.0.0.1:4711");
  EXPECT_EQ(status.ranks[0].state, "healthy");
  EXPECT_FALSE(status.ranks[0].lost);
  EXPECT_EQ(status.ranks[1].state, "gone");
  EXPECT_TRUE(status.ranks[1].lost);
  EXPECT_EQ(status.ranks[1].reason, "rank 2: it died; its experts are others' now");
  EXPECT_GT(status.ranks[1].changed_s, 1e9);
  EXPECT_FALSE(status.ranks[2].lost) << "it went of its own accord";
  const json object = json::parse(to_json_text(status));
  EXPECT_EQ(object["ranks"][1]["host"], "node2");
  EXPECT_EQ(object["ranks"][1]["lost"], true);
  record.note(
      {.rank = {2}, .from = WorkerState::kGone, .to = WorkerState::kJoining, .reason = "it has come", .home = {"node9", ""}});
  EXPECT_EQ(look().ranks[1].host, "node9") << "another one has its rank";
  EXPECT_FALSE(look().ranks[1].lost);
}

TEST(LiveStatus, NamesWorkersThatAreMissing) {
  const LiveStatus::Workers workers = sample_status().workers;
  EXPECT_EQ(workers.by_state.at("healthy"), 1);
  ASSERT_EQ(workers.missing.size(), 1U);
  EXPECT_EQ(workers.missing[0].rank, 2);
  EXPECT_EQ(workers.missing[0].state, "masked");
  EXPECT_EQ(workers.covered_by_coordinator, 6);
}

TEST(LiveJson, IsReadAsItWasWritten) {
  const std::string text = to_json_text(sample_status());
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(to_json_text(parse_live_status(text, "here")), text);
  const json object = json::parse(text);
  EXPECT_EQ(object["requests"]["oldest"][0]["number"], 12);
  EXPECT_EQ(object["ranks"][1]["bytes_in"], 200);
}

TEST(LiveJson, OtherVersionsAreUnderstood) {
  json object = json::parse(to_json_text(sample_status()));
  object["server"].erase("dtype");
  object["server"]["mood"] = "good";
  EXPECT_EQ(parse_live_status(object.dump(), "here").server.dtype, "");
}

/// The complaint about `text`.
std::string refusal_of(const std::string& text) {
  try {
    parse_live_status(text, "here");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
}

TEST(LiveJson, NumbersThatNoFieldHoldsAreShown) {
  EXPECT_EQ(refusal_of(R"({"server": {}, "requests": {"running": 1e308}})"),
            "here: status.requests.running is 1e+308; allowed: numbers of a size up to 9e18");
  EXPECT_EQ(refusal_of(R"({"server": {}, "ranks": [{}, {"rows": 18446744073709551615}]})"),
            "here: status.ranks[1].rows is 18446744073709551615; allowed: numbers of a size up to 9e18");
  EXPECT_EQ(refusal_of(R"({"server": {"uptime_s": -1e300}})"),
            "here: status.server.uptime_s is -1e+300; allowed: numbers of a size up to 9e18");
  EXPECT_EQ(refusal_of(R"({"server": {"uptime_s": 9e18}, "requests": {"running": -9000000000000000000}})"), "");
}

TEST(LiveJson, StrangersAreRefused) {
  for (const char* text : {"", "[]", "{}", "<html>", R"({"server": 3})", R"({"server": {"model": 1}})",
                           R"({"server": {}, "ranks": [3]})", R"({"server": {}, "requests": {"by_state": {"a": "b"}}})"})
    EXPECT_NE(refusal_of(text).find("here"), std::string::npos) << text;
  const std::string counts = refusal_of(R"({"server": {}, "seconds": {"queue": {"bounds": [1, 2], "counts": [3]}}})");
  EXPECT_EQ(counts, "here: seconds.queue has 1 counts for 2 bounds; allowed: one more");
}

TEST(LiveJson, ErrorsAreTold) {
  EXPECT_EQ(error_message_of(http_error(401, "a key is missing").body), "a key is missing");
  for (const char* text : {"", "{}", "<html>", R"({"error": "Unauthorized"})"}) EXPECT_EQ(error_message_of(text), "") << text;
}

TEST(LiveRoutes, OnlyTheFiguresAreGuarded) {
  LiveFeed feed(sample_status);
  HttpRouter router;
  add_live_routes(router, feed);
  EXPECT_EQ(router.find("GET", "/status.json")->guard, HttpGuard::kGuarded);
  const HttpResponse figures = ask(*router.find("GET", "/status.json"));
  EXPECT_EQ(figures.content_type, "application/json");
  EXPECT_EQ(parse_live_status(figures.body, "here").server.model, "demo");
  EXPECT_EQ(router.find("GET", "/")->guard, HttpGuard::kOpen);
  const HttpResponse page = ask(*router.find("GET", "/"));
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(page.body.find("{{"), std::string::npos) << "a mark was not filled";
  EXPECT_EQ(page.body.find("demo"), std::string::npos) << "the page says something of the job";
}

TEST(LiveFeed, IsMadeOnceForManyWatchers) {
  int num_made = 0;
  LiveFeed feed([&] {
    ++num_made;
    return LiveStatus{};
  });
  const LiveFeed::SteadyClock::time_point start{};
  const std::shared_ptr<const std::string> first = feed.json(start);
  EXPECT_EQ(feed.json(start + LiveFeed::kFreshness / 2), first);
  EXPECT_EQ(num_made, 1);
  feed.json(start + LiveFeed::kFreshness);
  EXPECT_EQ(num_made, 2);
}

}  // namespace
}  // namespace ferry
