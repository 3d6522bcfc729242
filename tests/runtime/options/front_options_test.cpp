#include "runtime/options/front_options.h"

#include <gtest/gtest.h>

#include "tests/runtime/options/command_lines.h"

namespace ferry {
namespace {

using test::accept;
using test::refuse;

TEST(FrontOptions, NeedCoordinatorsAlone) {
  const Options options = accept({"front", "--coordinator", "a:1", "--coordinator", "[::1]:2,b:3"});
  EXPECT_EQ(options.command, Command::kFront);
  const FrontOptions& front = options.front;
  ASSERT_EQ(front.coordinators.size(), 2u);
  EXPECT_EQ(front.coordinators[0].http, "a:1");
  EXPECT_EQ(front.coordinators[0].grpc, "");
  EXPECT_EQ(front.coordinators[1].http, "[::1]:2");
  EXPECT_EQ(front.coordinators[1].grpc, "b:3");
  EXPECT_EQ(front.http_address, "127.0.0.1:8000");
  EXPECT_EQ(front.grpc_address, "127.0.0.1:50051");
  EXPECT_EQ(front.drain_timeout_s, 30);
  EXPECT_EQ(front.lost_after_s, 10);
}

TEST(FrontOptions, HaveThoseOfThePorts) {
  const FrontOptions front = accept({"front", "--coordinator",     "a:1,a:2", "--http",         "off", "--grpc",
                                     "h:0",   "--drain-timeout",   "0.5",     "--lost-after",   "3",   "--api-key-file",
                                     "k",     "--tls-cert",        "c",       "--tls-key",      "p",   "--allowed-host",
                                     "front", "--http-body-bytes", "2MiB",    "--grpc-streams", "7"})
                                 .front;
  EXPECT_EQ(front.http_address, "off");
  EXPECT_EQ(front.grpc_address, "h:0");
  EXPECT_EQ(front.drain_timeout_s, 0.5);
  EXPECT_EQ(front.lost_after_s, 3);
  EXPECT_EQ(front.access.api_key_file, "k");
  EXPECT_EQ(front.access.tls_cert, "c");
  EXPECT_EQ(front.access.allowed_hosts, std::vector<std::string>{"front"});
  EXPECT_EQ(front.limits.http_body_bytes, 2 << 20);
  EXPECT_EQ(front.limits.grpc_streams, 7);
}

TEST(FrontOptions, RefuseWhatMakesNoSense) {
  refuse({"front"}, {"--coordinator"});
  for (const char* bad : {"", ",", "a:1,", ",a:1", "a:1,b:2,c:3"})
    refuse({"front", "--coordinator", bad}, {"--coordinator", "'" + std::string(bad) + "'", "HOST:PORT of HTTP"});
  refuse({"front", "--coordinator", "a:1", "b:2"}, {"b:2"});
  refuse({"front", "--coordinator", "a:1", "--coordinator", "a:1,b:2"}, {"--coordinator", "'a:1'", "each coordinator once"});
  refuse({"front", "--coordinator", "a:1", "--http", "off", "--grpc", "off"}, {"--http", "--grpc", "one of them"});
  refuse({"front", "--coordinator", "a:1", "--http", "off"}, {"--http: off", "no --coordinator has a gRPC port"});
  refuse({"front", "--coordinator", "a:1", "--drain-timeout", "-1"}, {"--drain-timeout", "'-1'", "0 to 86400 seconds"});
  refuse({"front", "--coordinator", "a:1", "--lost-after", "0"}, {"--lost-after", "'0'", "1 to 86400 seconds"});
  refuse({"front", "--coordinator", "a:1", "--tls-key", "p"}, {"--tls-key", "--tls-cert", "both or neither"});
  refuse({"front", "--coordinator", "a:1", "--model", "m"}, {"--model"});
  refuse({"front", "--coordinator", "a:1", "--prompt-bytes", "7"}, {"--prompt-bytes"});
  std::vector<std::string> many{"front"};
  for (int i = 0; i <= 64; ++i) many.insert(many.end(), {"--coordinator", "a:" + std::to_string(i + 1)});
  refuse(many, {"--coordinator", "65 times", "at most 64"});
}

}  // namespace
}  // namespace ferry
