#include "moe/placement/placement_file.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

std::string file(const std::string& layers, const std::string& more = "") {
  return R"({"format": "ferry-placement", "version": 1, "num_experts": 3, "num_workers": 2, "layers": )" + layers + more + "}";
}

TEST(PlacementFile, ComesBackAsItWasWritten) {
  const PlacementFile placement{.num_experts = 3, .num_workers = 2, .layers = {{{{0}, {1}}, {{2}, {0}}}, {{{1}}, {{2}, {0}}}}};
  const PlacementFile got = read_placement(write_placement(placement), "map");
  EXPECT_EQ(got.num_experts, 3);
  EXPECT_EQ(got.num_workers, 2);
  EXPECT_EQ(got.layers, placement.layers);
}

TEST(PlacementFile, SaysWhatIsWrong) {
  const auto refused = [](const std::string& text, const std::string& part) {
    test::expect_error([&] { read_placement(text, "map"); }, ErrorCode::kInvalidArgument, {"map", part});
  };
  refused("{", "");
  refused(R"({"format": "x"})", "no version");
  refused(file("[]"), "layers");
  refused(file("[[[0, 1, 2]]]"), "a list of 2");
  refused(file("[[[0, 1], [2, 3]]]"), "layers[0][1][1] is 3; allowed: a whole number from 0 to 2");
  refused(file("[[[0, 1, 1], [2]]]"), "expert 1 twice");
  refused(file("[[[0, 1], [0]]]"), "expert 2 on no worker");
  refused(file("[[[0, 1], [2]]]", R"(, "extra": 1)"), "unknown \"extra\"");
}

}  // namespace
}  // namespace ferry
