#include "profiler/export/stack_profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/sampled_stacks.h"

namespace ferry {
namespace {

using nlohmann::json;

/// What the schema of speedscope (file-format-schema.json) asks of a file with sampled profiles.
void expect_speedscope(const json& file) {
  EXPECT_EQ(file.at("$schema"), "https://www.speedscope.app/file-format-schema.json");
  const std::size_t num_frames = file.at("shared").at("frames").size();
  for (const json& frame : file.at("shared").at("frames")) EXPECT_TRUE(frame.at("name").is_string());
  for (const json& profile : file.at("profiles")) {
    EXPECT_EQ(profile.at("type"), "sampled");
    EXPECT_EQ(profile.at("unit"), "nanoseconds");
    ASSERT_EQ(profile.at("samples").size(), profile.at("weights").size());
    int64_t sum = 0;
    for (const json& weight : profile.at("weights")) sum += weight.get<int64_t>();
    EXPECT_EQ(profile.at("endValue").get<int64_t>() - profile.at("startValue").get<int64_t>(), sum);
    for (const json& sample : profile.at("samples")) {
      for (const json& frame : sample) EXPECT_LT(frame.get<std::size_t>(), num_frames);
    }
  }
}

TEST(SpeedscopeTest, AProfileForEachRankAndPhase) {
  const ReportInput input(test::sampled_stacks());
  std::ostringstream out;
  write_speedscope(input, out);
  const json file = json::parse(out.str());
  expect_speedscope(file);
  ASSERT_EQ(file.at("profiles").size(), 4U);
  EXPECT_EQ(file.at("profiles")[0].at("name"), "rank 0, outside");
  EXPECT_EQ(file.at("profiles")[3].at("name"), "rank 1, decode");
  const json& decode = file.at("profiles")[2];
  EXPECT_EQ(decode.at("name"), "rank 0, decode");
  EXPECT_EQ(decode.at("endValue"), 4'000'000);
  std::vector<std::string> names;
  for (const json& frame : decode.at("samples")[0])
    names.push_back(file.at("shared").at("frames")[frame.get<std::size_t>()].at("name"));
  EXPECT_EQ(names, (std::vector<std::string>{"main", "step(int)", "experts; all"})) << "the outermost first";
}

TEST(SpeedscopeTest, NamesThatAreNoTextStayReadable) {
  Capture capture = test::sampled_stacks();
  capture.ranks[0].stacks.frames[0].function = "a\"\\\n\xff";
  std::ostringstream out;
  write_speedscope(ReportInput(std::move(capture)), out);
  expect_speedscope(json::parse(out.str()));
}

}  // namespace
}  // namespace ferry
