#include "launch/verify/option_changes.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(OptionChangesTest, ReadsCommandLines) {
  const CommandLine line =
      read_command_line("build/ferry  bench --model demo -p 64,200 --json --threads=2 --kwargs {\"a\": -1}");
  EXPECT_EQ(line.command, "bench");
  EXPECT_EQ(line.options.size(), 5U);
  EXPECT_EQ(line.options.at("--model"), "demo");
  EXPECT_EQ(line.options.at("-p"), "64,200");
  EXPECT_EQ(line.options.at("--json"), "");
  EXPECT_EQ(line.options.at("--threads"), "2");
  EXPECT_EQ(line.options.at("--kwargs"), "{\"a\": -1}") << "a value of several words, and a negative number in it";
  const CommandLine said = read_command_line("ferry generate --prompt 'it'\\''s --threads 8' --threads 2");
  EXPECT_EQ(said.options.at("--threads"), "2") << "what is quoted is no option";
  EXPECT_EQ(said.options.size(), 2U);
  EXPECT_TRUE(read_command_line("").options.empty());
  EXPECT_TRUE(read_command_line("ferry").command.empty());
  EXPECT_EQ(read_command_line("ferry serve -").options.size(), 0U);
}

TEST(OptionChangesTest, NamesWhatCameWentAndChanged) {
  CaptureInfo before, after;
  before.command = "ferry serve --model demo --max-seqs 4 --threads 1 --http 127.0.0.1:1";
  after.command = "ferry serve --threads 2 --model demo --lm-head-screen --http 127.0.0.1:2";
  before.world_size = 4;
  after.world_size = 2;
  const std::vector<OptionChange> changes = find_option_changes(before, after);
  ASSERT_EQ(changes.size(), 4U);
  EXPECT_EQ(changes[0].option, "--lm-head-screen");
  EXPECT_EQ(changes[1].option, "--max-seqs");
  EXPECT_EQ(changes[1].before, "4");
  EXPECT_EQ(changes[1].after, "");
  EXPECT_EQ(changes[2].option, "--threads");
  EXPECT_EQ(changes[2].after, "2");
  EXPECT_EQ(changes[3].option, "-np");
  EXPECT_EQ(changes[3].before, "4");
  EXPECT_EQ(changes[3].after, "2");
  EXPECT_TRUE(find_option_changes(before, before).empty());
  after.settings = {{"--max-seqs", "16"}, {"--threads", "7"}, {"--prefill-chunk", "2048"}};
  const std::vector<OptionChange> settled = find_option_changes(before, after);
  ASSERT_EQ(settled.size(), 4U) << "what neither was given is no change";
  EXPECT_EQ(settled[1].after, "16") << "what it did by itself";
  EXPECT_EQ(settled[2].after, "2") << "what it was given";
}

}  // namespace
}  // namespace ferry
