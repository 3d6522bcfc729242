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

TEST(FrontOptions, AFrontIsNotItsOwnCoordinator) {
  const auto line = [](const std::string& coordinator, const std::string& http, const std::string& grpc) {
    return std::vector<std::string>{"front", "--coordinator", "a:1", "--coordinator", coordinator, "--http",
                                    http,    "--grpc",        grpc};
  };
  refuse({"front", "--coordinator", "localhost:8000"},
         {"--coordinator: 'localhost:8000'", "this front's own --http 127.0.0.1:8000", "ports of ferry serve"});
  for (const char* own : {"127.0.0.1:8000", "localhost:8000", "0.0.0.0:8000", "127.3.2.1:8000"})
    refuse(line(own, "0.0.0.0:8000", "off"), {"--coordinator: '" + std::string(own) + "'", "own --http 0.0.0.0:8000"});
  refuse(line("[::1]:8000", "[::]:8000", "off"), {"own --http [::]:8000"});
  refuse(line("b:1,node0:9000", "a:8000", "Node0:9000"), {"--coordinator: 'node0:9000'", "own --grpc Node0:9000"});
  refuse(line("node0:9000,b:1", "a:8000", "node0:9000"), {"--coordinator: 'node0:9000'", "own --grpc node0:9000"});
  accept(line("127.0.0.1:8001", "127.0.0.1:8000", "off"));
  accept(line("127.0.0.2:8000", "127.0.0.1:8000", "off"));
  accept(line("node1:8000", "0.0.0.0:8000", "off"));
  accept(line("127.0.0.1:50051", "127.0.0.1:0", "127.0.0.1:50051"));  // which is not opened: no coordinator has gRPC
}

TEST(FrontOptions, PortsAreHostPortAndTakenOnce) {
  refuse({"front", "--coordinator", "node0"}, {"--coordinator address 'node0'", "is not HOST:PORT"});
  refuse({"front", "--coordinator", "a:1,b"}, {"--coordinator address 'b'", "is not HOST:PORT"});
  refuse({"front", "--coordinator", "a:1", "--http", "8000"}, {"--http address '8000'", "is not HOST:PORT"});
  refuse({"front", "--coordinator", "a:1,a:2", "--http", "0.0.0.0:8000", "--grpc", "b:8000"},
         {"--http 0.0.0.0:8000 (port 8000) and --grpc b:8000 (port 8000) overlap"});
}

}  // namespace
}  // namespace ferry
