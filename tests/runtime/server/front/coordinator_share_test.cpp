#include "runtime/server/front/coordinator_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace ferry {
namespace {

Options given() {
  Options options;
  options.serve.http_address = "127.0.0.1:8000";
  options.serve.grpc_address = "[::1]:50051";
  options.serve.archive.trace_dir = "traces";
  options.engine.elastic.address = "node0:29750";
  options.engine.expert_load = "loads";
  return options;
}

TEST(CoordinatorShare, OneAloneHasAllAsItIs) {
  const Options share = share_of(given(), {});
  EXPECT_EQ(share.serve.http_address, "127.0.0.1:8000");
  EXPECT_EQ(share.engine.expert_load, "loads");
  EXPECT_EQ(share.serve.archive.trace_dir, "traces");
}

TEST(CoordinatorShare, PortsComeBehindTheJobs) {
  const Options first = share_of(given(), {.index = 0, .count = 2, .host = ""});
  EXPECT_EQ(first.serve.http_address, "127.0.0.1:8001");
  EXPECT_EQ(first.serve.grpc_address, "[::1]:50052");
  EXPECT_EQ(first.engine.elastic.address, "node0:29750") << "nobody else has it";
  EXPECT_EQ(first.engine.expert_load, "loads");
  EXPECT_EQ(first.serve.archive.trace_dir, "traces/coordinator-0");

  const Options second = share_of(given(), {.index = 1, .count = 2, .host = ""});
  EXPECT_EQ(second.serve.http_address, "127.0.0.1:8002");
  EXPECT_EQ(second.serve.grpc_address, "[::1]:50053");
  EXPECT_EQ(second.engine.elastic.address, "node0:29751");
  EXPECT_EQ(second.engine.expert_load, "loads.1");
  EXPECT_EQ(second.serve.archive.trace_dir, "traces/coordinator-1");
}

TEST(CoordinatorShare, OnSeveralHostsEachListensWhereOthersReachIt) {
  const Options share = share_of(given(), {.index = 1, .count = 2, .host = "10.0.0.2"});
  EXPECT_EQ(share.serve.http_address, "10.0.0.2:8002");
  EXPECT_EQ(share.serve.grpc_address, "10.0.0.2:50053");
}

TEST(CoordinatorShare, WhatIsOffOrChosenBySystemStaysSo) {
  Options options = given();
  options.serve.grpc_address = "127.0.0.1:0";
  options.serve.archive.trace_dir.reset();
  options.engine.elastic.address = "unix:here";
  options.engine.expert_load.clear();
  const Options share = share_of(options, {.index = 3, .count = 4, .host = ""});
  EXPECT_EQ(share.serve.grpc_address, "127.0.0.1:0");
  EXPECT_FALSE(share.serve.archive.trace_dir);
  EXPECT_EQ(share.engine.elastic.address, "unix:here-3");
  EXPECT_TRUE(share.engine.expert_load.empty());
  options.serve.grpc_address = "off";
  EXPECT_EQ(share_of(options, {.index = 3, .count = 4, .host = "10.0.0.2"}).serve.grpc_address, "off");
}

/// Why options cannot be shared out.
std::string refusal(const Options& options, const CoordinatorSeat& seat) {
  try {
    share_of(options, seat);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CoordinatorShare, TlsIsTheFronts) {
  Options options = given();
  options.serve.http_address = "0.0.0.0:8000";
  options.serve.access.tls_cert = options.serve.access.tls_key = "pem";
  options.serve.access.api_key_file = "keys";
  const Options share = share_of(options, {.index = 1, .count = 2, .host = ""});
  EXPECT_EQ(share.serve.http_address, "127.0.0.1:8002");
  EXPECT_TRUE(share.serve.access.tls_cert.empty());
  EXPECT_EQ(share.serve.access.api_key_file, "keys");
  EXPECT_THAT(refusal(options, {.index = 1, .count = 2, .host = "10.0.0.2"}), testing::HasSubstr("--tls-cert"));
}

}  // namespace
}  // namespace ferry
