#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/options/options.h"
#include "tests/runtime/options/command_lines.h"

namespace ferry {
namespace {

using test::accept;
using test::refuse;

TEST(TopOptions, WatchTheLocalServerByDefault) {
  const TopOptions top = accept({"top"}).top;
  EXPECT_EQ(top.target, "127.0.0.1:8000");
  EXPECT_EQ(top.interval_s, 1);
  EXPECT_FALSE(top.once || top.json || top.asks_for_tls());
}

TEST(TopOptions, TakeWhatTheyAreGiven) {
  const TopOptions top = accept({"top", "node:1", "--interval", "0.5", "--once", "--json", "--tls-ca", "ca"}).top;
  EXPECT_EQ(top.target, "node:1");
  EXPECT_EQ(top.interval_s, 0.5);
  EXPECT_TRUE(top.once && top.json && top.asks_for_tls());
}

TEST(TopOptions, WrongOnesAreRefused) {
  refuse({"top", "--interval", "0"}, {"--interval", "'0'", "0.1 to 3600"});
  refuse({"top", "--tls-cert", "c"}, {"--tls-cert", "--tls-key"});
  refuse({"top", "--tls-key", "k"}, {"--tls-key", "--tls-cert"});
  refuse({"top", "--api-key-file", ""}, {"--api-key-file", "a file"});
}

TEST(TopOptions, TheEnvironmentSaysWhatTheTerminalCan) {
  ASSERT_EQ(setenv("NO_COLOR", "1", 1), 0);
  ASSERT_EQ(setenv("FERRY_API_KEY", "a-secret-key", 1), 0);
  const TopOptions top = accept({"top"}).top;
  EXPECT_TRUE(top.no_color);
  EXPECT_EQ(top.api_key, "a-secret-key");
  ASSERT_EQ(setenv("NO_COLOR", "", 1), 0);
  ASSERT_EQ(unsetenv("FERRY_API_KEY"), 0);
  EXPECT_FALSE(accept({"top"}).top.no_color);
  ASSERT_EQ(unsetenv("NO_COLOR"), 0);
}

}  // namespace
}  // namespace ferry
