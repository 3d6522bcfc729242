#include "runtime/net/hosts.h"

#include <gtest/gtest.h>

namespace ferry {
namespace {

TEST(Hosts, OnlyThisMachineIsLoopback) {
  for (const char* host : {"localhost", "LocalHost", "127.0.0.1", "127.8.9.10", "::1", "[::1]", "[::ffff:127.0.0.1]"})
    EXPECT_TRUE(is_loopback_host(host)) << host;
  for (const char* host : {"0.0.0.0", "[::]", "10.0.0.1", "127.example.org", "127.0.0.1.example.org", "localhost.example.org",
                           "[::ffff:10.0.0.1]", "[::2]", ""})
    EXPECT_FALSE(is_loopback_host(host)) << host;
}

TEST(Hosts, ListenersCollideThatHaveAnAddressInCommon) {
  const std::pair<const char*, const char*> together[] = {{"127.0.0.1", "127.0.0.1"},
                                                          {"localhost", "127.0.0.1"},
                                                          {"localhost", "[::1]"},
                                                          {"[0:0:0:0:0:0:0:1]", "[::1]"},
                                                          {"Node0", "node0"},
                                                          {"0.0.0.0", "10.0.0.1"},
                                                          {"0.0.0.0", "node0"},
                                                          {"[::]", "10.0.0.1"},
                                                          {"[::]", "[2001:db8::1]"},
                                                          {"[::]", "0.0.0.0"},
                                                          {"[::ffff:7f00:1]", "127.0.0.1"}};
  for (const auto& [a, b] : together) {
    EXPECT_TRUE(do_listeners_collide(a, b)) << a << " " << b;
    EXPECT_TRUE(do_listeners_collide(b, a)) << b << " " << a;
  }
  const std::pair<const char*, const char*> apart[] = {
      {"127.0.0.1", "127.0.0.2"}, {"127.0.0.1", "[::1]"}, {"node0", "node1"}, {"0.0.0.0", "[::1]"}, {"node0", "10.0.0.1"}};
  for (const auto& [a, b] : apart) {
    EXPECT_FALSE(do_listeners_collide(a, b)) << a << " " << b;
    EXPECT_FALSE(do_listeners_collide(b, a)) << b << " " << a;
  }
}

TEST(Hosts, WhoeverIsReachedForSureIsKnown) {
  const std::pair<const char*, const char*> reached[] = {
      {"127.0.0.1", "127.0.0.1"}, {"localhost", "127.0.0.1"}, {"127.0.0.1", "localhost"}, {"0.0.0.0", "127.0.0.1"},
      {"[::]", "localhost"},      {"127.0.0.1", "0.0.0.0"},   {"localhost", "[::]"},      {"127.0.0.7", "[::]"},
      {"0.0.0.0", "0.0.0.0"},     {"node0", "NODE0"},         {"10.0.0.1", "10.0.0.1"}};
  for (const auto& [host, listener] : reached) EXPECT_TRUE(reaches_listener(host, listener)) << host << " " << listener;
  const std::pair<const char*, const char*> unknown[] = {{"10.0.0.1", "0.0.0.0"},    {"node0", "[::]"},
                                                         {"127.0.0.2", "127.0.0.1"}, {"127.0.0.1", "10.0.0.1"},
                                                         {"[::1]", "0.0.0.0"},       {"node0", "node1"}};
  for (const auto& [host, listener] : unknown) EXPECT_FALSE(reaches_listener(host, listener)) << host << " " << listener;
}

}  // namespace
}  // namespace ferry
