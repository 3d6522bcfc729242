#include "moe/placement/load_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/base/error.h"

namespace ferry {
namespace {

using testing::HasSubstr;

const std::string kText = R"({"format":"ferry-expert-load","version":1,"num_layers":2,"num_experts":3,"num_steps":2.5,)"
                          R"("rows":[[5.0,1.25,0.0],[0.0,1.0,1.0]],"touched":[[2.0,1.0,0.0],[0.0,1.0,0.1]]})"
                          "\n";

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = kText;
  text.replace(text.find(from), from.size(), to);
  return text;
}

template <class Read>
void expect_load_error(Read read, const std::string& message) {
  try {
    read();
    FAIL() << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

TEST(LoadFile, ComesBackAsItWasWritten) {
  const ExpertLoads loads = read_expert_loads(kText, "loads");
  EXPECT_EQ(loads.num_layers, 2);
  EXPECT_EQ(loads.num_experts, 3);
  EXPECT_EQ(loads.num_steps, 2.5);
  EXPECT_EQ(loads.rows, (std::vector<double>{5, 1.25, 0, 0, 1, 1}));
  EXPECT_EQ(loads.touched, (std::vector<double>{2, 1, 0, 0, 1, 0.1}));
  EXPECT_EQ(write_expert_loads(loads), kText);
}

TEST(LoadFile, DecayedSumsAreAcceptedToo) {
  LoadWindows windows({.num_layers = 1, .num_experts = 2, .steps_per_window = 1, .num_windows = 9});
  for (int64_t step = 1; step <= 9; ++step) {
    windows.add_layer(0, std::vector<int64_t>{step, 0});
    windows.end_step();
  }
  const ExpertLoads loads = windows.loads(2.7);
  EXPECT_EQ(read_expert_loads(write_expert_loads(loads), "loads").rows, loads.rows);
}

TEST(LoadFile, RefusesWhatCannotBe) {
  const auto expect = [](const std::string& from, const std::string& to, const std::string& message) {
    expect_load_error([&] { read_expert_loads(replaced(from, to), "loads"); }, message);
  };
  expect("ferry-expert-load", "gguf", "loads: format is \"gguf\"; allowed: ferry-expert-load");
  expect("\"version\":1", "\"version\":2", "loads: version is 2; allowed: a whole number from 1 to 1");
  expect("\"num_layers\":2", "\"num_layers\":3", "loads: rows is [[5.0,1.25,0.0],[0.0,1.0,1.0]]; allowed: a list of 3");
  expect("\"num_experts\":3", "\"num_experts\":0", "loads: num_experts is 0; allowed: a whole number from 1 to 8192");
  expect("\"num_steps\":2.5", "\"num_steps\":-1", "loads: num_steps is -1; allowed: 0 to 1e15");
  expect("[5.0,1.25,0.0]", "[5.0,1.25]", "loads: rows[0] is [5.0,1.25]; allowed: a list of 3");
  expect("[5.0,1.25,0.0]", "[5.0,null,0.0]", "loads: rows[0][1] is null; allowed: 0 to 1e15");
  expect("[5.0,1.25,0.0]", "[5.0,1e16,0.0]", "loads: rows[0][1] is 1e+16; allowed: 0 to 1e15");
  expect("[2.0,1.0,0.0]", "[2.6,1.0,0.0]",
         "loads: touched[0][0] is 2.6; allowed: at most the expert's rows (5.0) and num_steps (2.5)");
  expect("[0.0,1.0,0.1]", "[0.5,1.0,0.1]", "loads: touched[1][0] is 0.5; allowed: at most the expert's rows (0.0)");
  expect("\"num_steps\"", "\"steps\"", "loads: no num_steps");
  expect("\"num_steps\":2.5", "\"num_steps\":2.5,\"more\":1", "loads: unknown \"more\"");
  expect_load_error([] { read_expert_loads("[1]", "loads"); }, "loads is [1]; allowed: an object");
  expect_load_error([] { read_expert_loads("{", "loads"); }, "loads");
}

TEST(LoadFile, AFileHasToBeOfTheModel) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "expert_load_test.json";
  std::ofstream(path) << kText;
  EXPECT_EQ(read_expert_load_file(path, 2, 3).num_steps, 2.5);
  expect_load_error([&] { read_expert_load_file(path, 2, 4); },
                    path.string() + ": loads of 2 layers with 3 experts; allowed: the model's 2 with 4");
  std::filesystem::remove(path);
  EXPECT_THROW(read_expert_load_file(path, 2, 3), Error);
}

TEST(LoadFile, RecordsInTheShapesOfOthers) {
  const LoadRecord record{.num_windows = 2, .num_layers = 1, .num_experts = 3, .rows = {1, 0, INT32_MAX, 4, 5, INT32_MAX}};
  const std::string text = write_load_record(record);
  EXPECT_EQ(text, "{\"expert_load_window\":[[[1,0,2147483647]],[[4,5,2147483647]]]}\n");
  const LoadRecord back = read_load_record(text, "record");
  EXPECT_EQ(back.num_windows, 2);
  EXPECT_EQ(back.num_layers, 1);
  EXPECT_EQ(back.num_experts, 3);
  EXPECT_EQ(back.rows, record.rows);
  EXPECT_EQ(write_deepseek_weight(record), "{\"weight\":[[5,5,4294967294]]}\n");
}

TEST(LoadFile, RefusesRecordsThatAreNone) {
  const auto expect = [](const std::string& text, const std::string& message) {
    expect_load_error([&] { read_load_record(text, "record"); }, message);
  };
  expect(R"({"expert_load_window":[]})", "record: expert_load_window is []; allowed: a list of 1 to 65536");
  expect(R"({"expert_load_window":[[[1,2]],[[1]]]})", "record: expert_load_window[1][0] is [1]; allowed: a list of 2");
  expect(R"({"expert_load_window":[[[1,2]],[[1,2],[1,2]]]})",
         "record: expert_load_window[1] is [[1,2],[1,2]]; allowed: a list of 1");
  expect(R"({"expert_load_window":[[[1,-2]]]})",
         "record: expert_load_window[0][0] is -2; allowed: a whole number from 0 to 2147483647");
  expect(R"({"weight":[[1]]})", "record: no expert_load_window");
}

}  // namespace
}  // namespace ferry
