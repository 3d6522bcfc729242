#include "launch/bench_conditions.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ferry {
namespace {

nlohmann::ordered_json conditions_of(std::vector<const char*> more) {
  std::vector<const char*> arguments{"ferry", "bench", "--model", "folder"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ParseResult parsed = parse_options(static_cast<int>(arguments.size()), arguments.data());
  EXPECT_TRUE(parsed.options) << parsed.message;
  return parsed.options ? option_conditions(*parsed.options) : nlohmann::ordered_json();
}

/// The keys of which the values differ.
std::vector<std::string> differences(const nlohmann::ordered_json& first, const nlohmann::ordered_json& second) {
  std::vector<std::string> keys;
  for (const auto& item : second.items())
    if (!first.contains(item.key()) || first[item.key()] != item.value()) keys.push_back(item.key());
  return keys;
}

TEST(BenchConditions, EachOptionThatChangesWhatIsMeasuredIsOneThatDiffers) {
  struct Case {
    std::vector<const char*> options;
    std::vector<std::string> differ;
  };
  const std::vector<Case> cases{{{"--lm-head-screen"}, {"lm_head_screen"}},
                                {{"--memory", "2GiB"}, {"memory"}},
                                {{"-n", "3"}, {"decode_tokens"}},
                                {{"--prefill-chunk", "128"}, {"prefill_chunk"}},
                                {{"--combine", "fast"}, {"combine"}},
                                {{"--placement", "spread"}, {"placement"}},
                                {{"--placement", "map.json"}, {"placement"}},
                                {{"--redundancy", "12.5%"}, {"redundancy"}},
                                {{"--redundancy", "2x"}, {"redundancy"}},
                                {{"--redundancy", "32"}, {"redundancy"}},
                                {{"--rebalance", "7"}, {"rebalance"}},
                                {{"--expert-load", "loads"}, {"expert_load"}},
                                {{"--profile", "2"}, {"profile"}},
                                {{"--trace", "folder"}, {"traced"}},
                                {{"--trace", "folder", "--trace-routing"}, {"traced", "trace_routing"}},
                                {{"--fault", "stop:1@3s+5s"}, {"faults"}},
                                {{"--speculate", "2"}, {"speculate", "prompt_file"}},
                                {{"-r", "7"}, {}},
                                {{"-p", "7", "-b", "1,3", "-d", "5"}, {}}};
  const nlohmann::ordered_json plain = conditions_of({});
  for (const Case& c : cases) EXPECT_EQ(differences(plain, conditions_of(c.options)), c.differ) << c.options.front();
  EXPECT_EQ(differences(conditions_of({"--speculate", "2"}), conditions_of({"--speculate", "ngram:2"})),
            std::vector<std::string>{"speculate"});
}

}  // namespace
}  // namespace ferry
