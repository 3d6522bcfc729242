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
            "launch/mpirun.sh -np 3 build/ferry bench --model m --trace /tmp/a-after --threads 2");
  EXPECT_EQ(changed_command(info, "-np", "1"), "build/ferry bench --model m --trace /tmp/a-after");
  info.command = "serve";
  EXPECT_EQ(changed_command(info, "-np", "1"), "");
}

}  // namespace
}  // namespace ferry
