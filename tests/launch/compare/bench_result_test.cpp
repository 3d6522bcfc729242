#include "launch/compare/bench_result.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace ferry {
namespace {

using nlohmann::json;

json row_json(const char* name) {
  return {{"name", name},
          {"tokens_per_s", {{"median", 2}, {"samples", {1, 2.5, 3}}}},
          {"read_bytes_per_s", 3e10},
          {"is_possible", true},
          {"warm_up", {{"runs", 2}, {"is_steady", true}}}};
}

json result_json() {
  return {{"model", "m"},
          {"threads", 2},
          {"prefill", {row_json("prefill 512")}},
          {"decode", {row_json("decode 1")}},
          {"conditions", {{"version", "1.2"}, {"processor", "p"}}},
          {"of a later Ferry", {1, 2}}};
}

void expect_refused(const json& value, const std::vector<std::string>& parts) {
  try {
    read_bench_result(value.dump(), "file");
    FAIL() << "accepted " << value;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    for (const std::string& part : parts) EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(BenchResult, HoldsSamplesAndConditions) {
  const BenchResult read = read_bench_result(result_json().dump(), "file");
  ASSERT_EQ(read.rows.size(), 2U);
  EXPECT_EQ(read.rows[0].name, "prefill 512");
  EXPECT_EQ(read.rows[0].tokens_per_s, (std::vector<double>{1, 2.5, 3}));
  EXPECT_EQ(read.rows[0].read_bytes_per_s, 3e10);
  EXPECT_TRUE(read.rows[0].is_sound);
  EXPECT_EQ(read.conditions.at("threads"), "2");
  EXPECT_EQ(read.conditions.at("processor"), "\"p\"");
  EXPECT_EQ(read.conditions.count("version"), 0U) << "what differs on purpose";
  EXPECT_EQ(read.version, "\"1.2\"");
}

TEST(BenchResult, DraftsAreRowsLikeOthers) {
  json value = result_json();
  value["drafts"] = {{{"name", "drafts 4"}, {"tokens_per_s", {{"samples", {7}}}}}};
  EXPECT_EQ(read_bench_result(value.dump(), "file").rows.back().name, "drafts 4");
}

TEST(BenchResult, SaysWhatWasNotSound) {
  json value = result_json();
  value["decode"][0]["warm_up"]["is_steady"] = false;
  EXPECT_FALSE(read_bench_result(value.dump(), "file").rows[1].is_sound);
  value = result_json();
  value["decode"][0]["is_possible"] = false;
  EXPECT_FALSE(read_bench_result(value.dump(), "file").rows[1].is_sound);
}

TEST(BenchResult, RefusesWhatIsNone) {
  expect_refused(json::array(), {"file", "an object"});
  expect_refused({{"prefill", json::array()}}, {"file: no decode"});
  json value = result_json();
  value["prefill"][0]["tokens_per_s"].erase("samples");
  expect_refused(value, {"file: prefill[0].tokens_per_s: no samples", "each repetition"});
  value = result_json();
  value["prefill"].push_back(row_json("prefill 512"));
  expect_refused(value, {"two rows named 'prefill 512'"});
  value = result_json();
  value["prefill"][0].erase("name");
  expect_refused(value, {"prefill[0]: no name"});
  for (const json& bad : {json(0), json(-1), json("1"), json(nullptr), json(true)}) {
    value = result_json();
    value["decode"][0]["tokens_per_s"]["samples"][1] = bad;
    expect_refused(value, {"decode[0].tokens_per_s.samples[1]", "a number above 0"});
  }
  value = result_json();
  value["decode"][0]["tokens_per_s"]["samples"] = json::array();
  expect_refused(value, {"samples is []", "1 to 1000"});
  value["decode"][0]["tokens_per_s"]["samples"] = std::vector<int>(1001, 1);
  expect_refused(value, {"a list of up to 1000"});
  value = result_json();
  value["decode"][0]["name"] = std::string(101, 'x');
  expect_refused(value, {"decode[0].name", "1 to 100 bytes"});
}

TEST(BenchResult, RefusesNumbersThatAreNone) {
  std::string text = result_json().dump();
  text.replace(text.find("2.5"), 3, "1e999");
  EXPECT_THROW(read_bench_result(text, "file"), Error);
}

}  // namespace
}  // namespace ferry
