#include "launch/top/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <clocale>
#include <numeric>

namespace ferry {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A server under load, with everything that can be shown.
LiveStatus busy(double uptime_s) {
  LiveStatus status;
  status.server = {
      .version = "1", .model = "demo-of-some-length", .dtype = "bf16", .transport = "mpi", .ranks = 9, .uptime_s = uptime_s};
  status.requests = {.running = 16, .waiting = 5, .max_running = 16, .max_waiting = 256};
  status.requests.by_state = {{"decoding", 12}, {"waiting_for_media", 4}};
  status.requests.finished = {{"stop", 100}, {"error", 2}};
  status.requests.rejected = 7;
  status.tokens = {.prompt = 100, .cached = 50, .computed = 60, .generated = static_cast<int64_t>(400 * uptime_s)};
  status.steps = {.count = static_cast<int64_t>(40 * uptime_s), .seconds = uptime_s, .max_drafts = 2};
  status.recent = {.window_s = 5, .phases = {{"prefill", 10, 5000, 10, 1}, {"decode", 100, 1600, 1600, 3.5}}, .core_wait_s = 1};
  for (int32_t rank = 1; rank < 9; ++rank) status.ranks.push_back({.rank = rank, .exchanges = 10, .rows = 80});
  status.experts = {.count = 64, .per_token = 8, .balancedness = 0.93};
  status.workers = {.by_state = {{"healthy", 7}, {"masked", 1}},
                    .missing = {{.rank = 5, .state = "masked", .reason = "it left"}},
                    .covered_by_coordinator = 1234};
  status.archive = {.is_on = true, .steps = 31, .bytes = 1000, .left_out = 2, .drift = {{"decode", 1.5, 3.5, true}}};
  status.cache = {.blocks = 1000, .used_blocks = 420, .block_tokens = 16, .has_prefix_cache = true};
  for (uint64_t i = 0; i < 64; ++i) status.requests.oldest.push_back({.number = i, .state = "decoding", .age_s = 3});
  return status;
}

LiveHistory busy_history() {
  LiveHistory history;
  for (int second = 100; second < 120; ++second) history.add(busy(second));
  return history;
}

std::string text_of(const std::vector<std::string>& lines) {
  return std::accumulate(lines.begin(), lines.end(), std::string(),
                         [](const std::string& all, const std::string& line) { return all + line + "\n"; });
}

class Frame : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(std::setlocale(LC_CTYPE, "C.UTF-8"), nullptr); }
  void TearDown() override { std::setlocale(LC_CTYPE, "C"); }
};

TEST_F(Frame, ShowsWhatThereIs) {
  const std::string text = text_of(draw_frame(busy_history(), {.columns = 100}));
  for (const char* part :
       {"demo-of-some-length, bf16, 9 ranks over mpi", "serving, up 1 min 59 s", "running 16 of 16", "waiting for media 4",
        "error 2", "refused 7", "made 400", "busy 90.0 %", "threads without a core 0.20", "decode 70.0 %, 35.0 ms of 16.0 rows",
        "42.0 %", "balancedness 0.93", "12.5 %", "rank 5 masked", "rows of the coordinator 1,234"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << "no colours were allowed";
}

TEST_F(Frame, TellsWhereWorkersAreAndWhyOneDied) {
  LiveHistory history;
  LiveStatus status = busy(10);
  status.ranks = {
      {.rank = 1, .host = "node1", .address = "10.0.0.5:4711", .state = "healthy"},
      {.rank = 2, .host = "node2", .address = "10.0.0.6:99", .state = "gone", .lost = true, .reason = "rank 2: it died"},
      {.rank = 3, .host = "node3", .address = "unix", .state = "joining", .reason = "it has come"}};
  history.add(status);
  const std::string text = text_of(draw_frame(history, {.columns = 100}));
  EXPECT_THAT(text, HasSubstr("rank    state   host        address\n"));
  EXPECT_THAT(text, HasSubstr("   1  healthy  node1  10.0.0.5:4711\n"));
  EXPECT_THAT(text, HasSubstr("   2     dead  node2    10.0.0.6:99  rank 2: it died\n"));
  EXPECT_THAT(text, HasSubstr("   3  joining  node3           unix  it has come\n"));
}

/// The line of the archive, nothing if there is none.
std::string archive_line(const LiveStatus::Archive& archive, int columns = 120) {
  LiveHistory history;
  LiveStatus status = busy(10);
  status.archive = archive;
  history.add(status);
  const std::vector<std::string> lines = draw_frame(history, {.columns = columns});
  const auto found = std::ranges::find_if(lines, [](const std::string& line) { return line.starts_with("archive"); });
  return found == lines.end() ? "" : *found;
}

TEST_F(Frame, TheArchiveIsALineWhereStepsAreKept) {
  const LiveStatus::Archive kept{
      .is_on = true, .steps = 1234, .bytes = 56'700'000, .drift = {{"prefill"}, {"decode", 1.04, 1.21}, {"mixed", 0.98}}};
  EXPECT_EQ(archive_line(kept),
            "archive    1,234 steps, 56.7 MB   decode 1.04, 99 % 1.21 of the day before   mixed 0.98 of the day before");
  LiveStatus::Archive off = kept;
  off.is_on = false;
  EXPECT_EQ(archive_line(off), "");
}

TEST_F(Frame, AnAlarmIsSaidInWords) {
  const std::string line = archive_line({.is_on = true, .left_out = 3, .drift = {{"decode", 1.5, 3.25, true}}});
  EXPECT_EQ(line, "archive    0 steps, 0 B   left out 3   decode slower: 1.50, 99 % 3.25 of the day before");
}

TEST_F(Frame, ADriftThatIsNotKnownYetIsNone) {
  EXPECT_THAT(archive_line({.is_on = true, .drift = {{"prefill"}, {"decode"}, {"mixed"}}}), HasSubstr("too few steps to tell"));
}

TEST_F(Frame, FitsEveryScreen) {
  const LiveHistory history = busy_history();
  for (const bool has_blocks : {false, true}) {
    for (int columns = 1; columns <= 200; columns += 23) {
      for (const int rows : {1, 3, 13, 24, 100, 0}) {
        const Screen screen{.columns = columns, .rows = rows, .has_blocks = has_blocks};
        const std::vector<std::string> lines = draw_frame(history, screen);
        ASSERT_FALSE(lines.empty());
        ASSERT_TRUE(rows == 0 || std::ssize(lines) <= rows) << columns << " columns, " << rows << " rows";
        for (const std::string& line : lines) ASSERT_LE(display_width(line), columns) << line;
      }
    }
  }
}

TEST_F(Frame, NothingIsCutFromSixtyColumnsOn) {
  for (const int columns : {60, 80, 120, 200}) {
    const std::string text = text_of(draw_frame(busy_history(), {.columns = columns}));
    for (const char* end : {"refused 7", "from the cache 50.0 %", "snapshots 0", "for the transport", "waited for"})
      EXPECT_THAT(text, HasSubstr(end)) << columns << " columns";
  }
}

TEST_F(Frame, TablesSayWhatIsMissing) {
  const std::vector<std::string> lines = draw_frame(busy_history(), {.columns = 100, .rows = 40});
  EXPECT_EQ(lines.size(), 40U);
  EXPECT_THAT(lines.back(), HasSubstr(" more"));
}

TEST_F(Frame, FewRowsKeepWhatMattersMost) {
  const std::string text = text_of(draw_frame(busy_history(), {.columns = 100, .rows = 4}));
  EXPECT_THAT(text, HasSubstr("demo-of-some-length"));
  EXPECT_THAT(text, HasSubstr("running 16"));
  EXPECT_THAT(text, Not(HasSubstr("balancedness")));
}

TEST_F(Frame, SaysWhyNothingIsServed) {
  LiveHistory history;
  LiveStatus status = busy(10);
  status.server.complaint = "the engine has not gone on for 3.0 s";
  history.add(status);
  EXPECT_THAT(draw_frame(history, {.columns = 80}).at(1), HasSubstr("has not gone on"));
}

TEST_F(Frame, OneLookIsEnough) {
  LiveHistory history;
  history.add({});
  const std::string text = text_of(draw_frame(history, {.columns = 80}));
  EXPECT_THAT(text, HasSubstr("made -"));
  EXPECT_THAT(text, HasSubstr("not recorded"));
  EXPECT_THAT(text, Not(HasSubstr("balancedness"))) << "a dense model has none";
}

TEST_F(Frame, StrangersTextIsHarmless) {
  LiveHistory history;
  LiveStatus status = busy(10);
  status.server.model =
      "\x1b]0;evil\a\xff\r\nmod\u202e"
      "el";
  history.add(status);
  const std::string first = draw_frame(history, {.columns = 100, .has_colors = false}).front();
  EXPECT_THAT(first, HasSubstr(R"(\x1b]0;evil\x07?\x0d\x0amod\u202eel)"));
}

TEST_F(Frame, ColoursEndWhereTheyBegan) {
  const std::vector<std::string> lines = draw_frame(busy_history(), {.columns = 60, .has_colors = true, .has_blocks = true});
  std::size_t num_colored = 0;
  for (const std::string& line : lines) {
    const std::size_t last = line.rfind("\x1b[");
    if (last == std::string::npos) continue;
    ++num_colored;
    EXPECT_EQ(line.substr(last, 4), "\x1b[0m") << line;
  }
  EXPECT_GT(num_colored, 5U);
}

TEST_F(Frame, WideCharactersTakeTwoColumns) {
  EXPECT_EQ(display_width("\u6e21\u8239"), 4);
  StyledLine line;
  line.add("\u6e21\u8239\u6e21");
  EXPECT_EQ(line.render({.columns = 5}), "\u6e21\u8239");
}

TEST(StyledLine, OtherLocalesGetAscii) {
  std::setlocale(LC_CTYPE, "C");
  StyledLine line;
  line.add("caf\u00e9");
  EXPECT_EQ(line.render({.columns = 80}), "caf??");
}

}  // namespace
}  // namespace ferry
