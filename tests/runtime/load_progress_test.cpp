#include "runtime/load_progress.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/elastic/join_wait.h"
#include "tests/support/manual_clock.h"

namespace ferry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kGiB = int64_t{1} << 30;

class LoadProgressTest : public ::testing::Test {
 protected:
  LoadProgress make(LoadProgress::Form form, const std::string& who = "") {
    return {who, form, [this](const std::string& text) { printed_.push_back(text); }, clock_};
  }

  ManualClock clock_;
  std::vector<std::string> printed_;
};

TEST_F(LoadProgressTest, PrintsALineEveryTenSecondsAndOneAtTheEnd) {
  LoadProgress progress = make(LoadProgress::Form::kLines, "rank 2: ");
  progress.expect(30 * kGiB);
  progress.expect(10 * kGiB);
  clock_.advance(seconds(9));
  progress.add(11 * kGiB);
  EXPECT_TRUE(printed_.empty()) << printed_.front();
  clock_.advance(seconds(1));
  progress.add(1 * kGiB);
  progress.add(2 * kGiB);
  EXPECT_EQ(printed_, std::vector<std::string>{"ferry: rank 2: loading: 12.0 of 40.0 GiB (30 %)\n"});
  clock_.advance(seconds(25));
  progress.add(26 * kGiB);
  progress.finish();
  EXPECT_EQ(printed_, (std::vector<std::string>{"ferry: rank 2: loading: 12.0 of 40.0 GiB (30 %)\n",
                                                "ferry: rank 2: loading: 40.0 of 40.0 GiB (100 %)\n",
                                                "ferry: rank 2: loading: 40.0 of 40.0 GiB (100 %) in 35.0 s\n"}));
}

TEST_F(LoadProgressTest, StateIsToldWhileALineIsPrinted) {
  LoadProgress* asked = nullptr;
  int64_t seen = 0;
  const auto print = [&](const std::string&) { seen = asked->state().done_bytes; };
  LoadProgress progress("", LoadProgress::Form::kLines, print, clock_);
  asked = &progress;
  progress.expect(kGiB);
  clock_.advance(seconds(10));
  progress.add(7);
  EXPECT_EQ(seen, 7);
}

TEST_F(LoadProgressTest, QuickLoadPrintsNothing) {
  LoadProgress progress = make(LoadProgress::Form::kLines);
  progress.expect(kGiB);
  clock_.advance(milliseconds(1999));
  progress.add(kGiB);
  progress.finish();
  EXPECT_TRUE(printed_.empty()) << printed_.front();
}

TEST_F(LoadProgressTest, LoadOfAFewSecondsPrintsItsEnd) {
  LoadProgress progress = make(LoadProgress::Form::kLines);
  progress.expect(kGiB / 2);
  clock_.advance(seconds(3));
  progress.add(kGiB / 2);
  progress.finish();
  EXPECT_EQ(printed_, std::vector<std::string>{"ferry: loading: 512.0 of 512.0 MiB (100 %) in 3.0 s\n"});
}

TEST_F(LoadProgressTest, TerminalHasOneLineThatIsRewritten) {
  LoadProgress progress = make(LoadProgress::Form::kInPlace);
  progress.expect(2 * kGiB);
  clock_.advance(seconds(2));
  progress.add(kGiB);
  clock_.advance(milliseconds(199));
  progress.add(0);
  clock_.advance(milliseconds(1));
  progress.add(kGiB);
  progress.finish();
  EXPECT_EQ(printed_, (std::vector<std::string>{"\rferry: loading: 1.0 of 2.0 GiB (50 %)\033[K",
                                                "\rferry: loading: 2.0 of 2.0 GiB (100 %)\033[K",
                                                "\rferry: loading: 2.0 of 2.0 GiB (100 %) in 2.2 s\033[K\n"}));
}

TEST_F(LoadProgressTest, StateTellsWhatIsKnown) {
  LoadProgress progress = make(LoadProgress::Form::kLines);
  EXPECT_EQ(progress.state().total_bytes, 0);
  EXPECT_EQ(describe(progress.state()), "0.0 of 0.0 MiB (0 %)");
  clock_.advance(seconds(5));
  progress.expect(4 * kGiB);
  clock_.advance(seconds(1));
  progress.add(kGiB);
  const LoadProgress::State state = progress.state();
  EXPECT_EQ(state.done_bytes, kGiB);
  EXPECT_EQ(state.total_bytes, 4 * kGiB);
  EXPECT_DOUBLE_EQ(state.elapsed_s, 1);
}

TEST(JoinWait, PrintsALineEveryTenSecondsWhileItWaits) {
  ManualClock clock;
  JoinWait wait("node0:6000", clock);
  EXPECT_FALSE(wait.take_line());
  wait.begin(milliseconds(59'500));
  clock.advance(milliseconds(9'999));
  EXPECT_FALSE(wait.take_line());
  clock.advance(milliseconds(1));
  EXPECT_EQ(wait.take_line(), "waits for a coordinator at node0:6000: 10 of 60 s");
  EXPECT_FALSE(wait.take_line());
  clock.advance(seconds(12));
  EXPECT_EQ(wait.take_line(), "waits for a coordinator at node0:6000: 22 of 60 s");
  wait.end();
  clock.advance(seconds(20));
  EXPECT_FALSE(wait.take_line());
}

}  // namespace
}  // namespace ferry
