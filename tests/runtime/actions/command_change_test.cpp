#include "runtime/actions/command_change.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(CommandChangeTest, SetsAnOptionInItsPlace) {
  EXPECT_EQ(with_option("ferry serve --threads 1 --model m", "--threads", "2"), "ferry serve --threads 2 --model m");
  EXPECT_EQ(with_option("ferry serve --threads=1", "--threads", "2"), "ferry serve --threads=2");
  EXPECT_EQ(with_option("ferry serve", "--threads", "2"), "ferry serve --threads 2");
  EXPECT_EQ(with_option("ferry generate --prompt 'a --threads 3' -x", "--threads", "2"),
            "ferry generate --prompt 'a --threads 3' -x --threads 2");
  EXPECT_EQ(with_option("ferry generate --prompt 'it'\\''s a word' --threads 1", "--threads", "2"),
            "ferry generate --prompt 'it'\\''s a word' --threads 2");
}

TEST(CommandChangeTest, ReadsAnOption) {
  EXPECT_EQ(option_in("ferry serve --max-seqs 4", "--max-seqs"), "4");
  EXPECT_EQ(option_in("ferry serve --max-seqs=4", "--max-seqs"), "4");
  EXPECT_EQ(option_in("ferry serve --max-seqs", "--max-seqs"), std::nullopt);
  EXPECT_EQ(option_in("", "--max-seqs"), std::nullopt);
}

TEST(CommandChangeTest, AWholeLineHasItsRanksAndAFolderOfItsOwn) {
  CaptureInfo info;
  info.command = "build/ferry bench --model m --trace /tmp/a";
  info.world_size = 3;
  EXPECT_EQ(changed_command(info, "--threads", "2"),
            "launch/mpirun.sh -np 3 build/ferry bench --model m --trace /tmp/a-threads-2 --threads 2");
  EXPECT_EQ(changed_command(info, "-np", "1"), "build/ferry bench --model m --trace /tmp/a-np-1");
  info.command = "serve";
  EXPECT_EQ(changed_command(info, "-np", "1"), "");
}

TEST(CommandChangeTest, WorkersThatJoinAreNoLaunchersRanks) {
  CaptureInfo info;
  info.command = "ferry serve --elastic node0:29750 --threads 1 --join-key=key --model m";
  info.world_size = 3;
  EXPECT_EQ(changed_command(info, "--threads", "2"), "ferry serve --elastic node0:29750 --threads 2 --join-key=key --model m");
  EXPECT_EQ(changed_command(info, "-np", "1"), "ferry serve --threads 1 --model m");
  EXPECT_EQ(changed_command(info, "-np", "2"), "") << "no option keeps one of them out";
}

TEST(CommandChangeTest, OtherCoordinatorsAreStartedAsWell) {
  CaptureInfo info;
  info.command = "ferry serve --coordinators 2 --model m";
  info.world_size = 3;  // this coordinator's and two workers'
  EXPECT_EQ(changed_command(info, "--threads", "2"),
            "launch/mpirun.sh -np 4 ferry serve --coordinators 2 --model m --threads 2");
  EXPECT_EQ(changed_command(info, "-np", "2"), "launch/mpirun.sh -np 3 ferry serve --coordinators 2 --model m");
  EXPECT_EQ(changed_command(info, "-np", "1"), "ferry serve --model m");
}

TEST(CommandChangeTest, ALineThatWasCutOffIsNotGoneOnWith) {
  CaptureInfo info;
  info.command = "ferry generate --prompt 'a long te";
  info.world_size = 1;
  EXPECT_EQ(changed_command(info, "--threads", "2"), "");
  info.command = "ferry generate --prompt " + std::string(kMostCommandBytes, 'a');
  info.command.resize(kMostCommandBytes);
  EXPECT_EQ(changed_command(info, "--threads", "2"), "");
}

}  // namespace
}  // namespace ferry
