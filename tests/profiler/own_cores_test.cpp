#include "profiler/own_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace ferry {
namespace {

TEST(OwnCoresTest, AListNamesItsCores) {
  EXPECT_EQ(parse_cores("0-3,8"), (std::set<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cores("5"), (std::set<int>{5}));
  EXPECT_EQ(parse_cores("0,2-2"), (std::set<int>{0, 2}));
}

TEST(OwnCoresTest, WhatIsNoListNamesNone) {
  for (const char* text : {"", "a", "1-", "-1", "3-1", "1,,2", "1;2", "99999999999", "0-16384", "1 2"})
    EXPECT_TRUE(parse_cores(text).empty()) << text;
}

TEST(OwnCoresTest, ThisThreadsCoresAreThoseThatTheSystemGivesIt) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  const std::set<int> cores = parse_cores(own_cores());
  EXPECT_EQ(static_cast<int>(cores.size()), CPU_COUNT(&set));
  for (const int core : cores) EXPECT_TRUE(CPU_ISSET(core, &set)) << core;
}

}  // namespace
}  // namespace ferry
