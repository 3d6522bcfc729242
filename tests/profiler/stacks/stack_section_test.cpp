#include <gtest/gtest.h>

#include <cstring>

#include "profiler/stacks/stack_samples.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

StackCapture two_stacks() {
  return {.period_ns = 5'000'000,
          .absent = "no timer for thread 9: no room",
          .frames = {{"f(int)", "ferry"}, {"g", "libg.so"}},
          .stacks = {{0, 1}, {1}},
          .samples = {{.ticks = 10, .stack = 1, .tid = 7, .zone = Zone::kRouter, .is_in_zone = true, .periods = 3},
                      {.ticks = 20, .stack = 0, .tid = 8}},
          .num_lost = 4};
}

std::string error_of(const std::vector<std::byte>& bytes) {
  try {
    decode_stacks(bytes, "file");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The section with a row or a stack that says otherwise.
template <class Change>
std::string error_with(Change&& change) {
  StackCapture stacks = two_stacks();
  change(stacks);
  return error_of(encode_stacks(stacks));
}

TEST(StackSectionTest, ComesBackAsItWas) {
  EXPECT_EQ(decode_stacks(encode_stacks(two_stacks()), "file"), two_stacks());
  EXPECT_TRUE(encode_stacks({}).empty()) << "nothing sampled, no section";
  const StackCapture refused{.absent = "somebody else handles SIGPROF"};
  EXPECT_EQ(decode_stacks(encode_stacks(refused), "file"), refused);
}

TEST(StackSectionTest, RefusesWhatPointsNowhere) {
  EXPECT_NE(error_with([](StackCapture& s) { s.stacks[0][1] = 2; }).find("file: a stack with function 2"), std::string::npos);
  EXPECT_NE(error_with([](StackCapture& s) { s.samples[0].stack = 2; }).find("a sample of stack 2"), std::string::npos);
  EXPECT_NE(error_with([](StackCapture& s) { s.samples[0].periods = 0; }).find("0 periods"), std::string::npos);
  EXPECT_NE(error_with([](StackCapture& s) { s.samples[0].zone = static_cast<Zone>(kNumZones); }).find("zone"),
            std::string::npos);
  EXPECT_NE(error_with([](StackCapture& s) { s.period_ns = -1; }).find("a period of -1 ns"), std::string::npos);
  EXPECT_NE(error_with([](StackCapture& s) { s.stacks[0].assign(kMaxStackDepth + 1, 0); }).find("129 functions in a stack"),
            std::string::npos);
  EXPECT_NE(error_with([](StackCapture& s) { s.stacks[0].clear(); }).find("a stack without a function"), std::string::npos);
  EXPECT_NE(error_with([](StackCapture& s) { s.period_ns = 200'000'000; }).find("a period of"), std::string::npos);
  EXPECT_NE(error_with([](StackCapture& s) { s.frames[0].function.assign(kMaxFrameName + 1, 'x'); }).find("bytes of a name"),
            std::string::npos);
}

TEST(StackSectionTest, RefusesWhatIsCutOffAnywhere) {
  std::vector<std::byte> bytes = encode_stacks(two_stacks());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_NE(error_of({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}), "") << size << " bytes";
  bytes.push_back(std::byte{0});
  EXPECT_NE(error_of(bytes).find("1 bytes behind its samples"), std::string::npos);
}

}  // namespace
}  // namespace ferry
