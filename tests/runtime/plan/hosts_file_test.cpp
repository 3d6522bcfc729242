#include "runtime/plan/hosts_file.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace ferry {
namespace {

const std::string kHostsText = R"({"format": "ferry-hosts", "version": 3, "hosts": [{"name": "a", "count": 3, "role": "workers",
  "cores": 8, "ram_bytes": 1e10, "read_bytes_per_s": 2e10, "load_bytes_per_s": 3e9, "flops_per_s": 1e12,
  "code_flops_per_s": 2e12, "link_s": 4e-5, "message_s": 1e-5, "link_bytes_per_s": 1e9, "handling": [[64, 0.25]],
  "exchange": [{"workers": 2, "curve": [[1024, 0.125]]}], "measured": {"shape": "s", "layers": 2,
  "alone": {"own_decode": [[1, 0.25], [4, 1]], "own_prefill": [], "shared_decode": [], "shared_prefill": [],
    "head": [[1, 0.5]], "keys_decode": [[1, 0.125], [4, 0.25]], "key_prefill": 0, "expert_call": 0.5, "expert": [[1, 2]],
    "exchange_decode": [], "exchange_prefill": []},
  "together": [{"workers": 1, "costs": {"own_decode": [], "own_prefill": [[64, 1]], "shared_decode": [], "shared_prefill": [],
    "head": [], "keys_decode": [], "key_prefill": 0.5, "expert_call": 0, "expert": [],
    "exchange_decode": [[4096, 0.75]], "exchange_prefill": []}}]}}]})";

std::string hosts_with(const std::string& from, const std::string& to) {
  std::string text = kHostsText;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_hosts_refused(const std::string& text, const std::vector<std::string>& parts) {
  test::expect_error([&] { read_hosts(text, "hosts.json"); }, ErrorCode::kInvalidArgument, parts);
}

TEST(HostsFile, CostsAreForAsManyLayersAsTheModelHas) {
  const std::vector<HostEntry> hosts = read_hosts(kHostsText, "hosts.json");
  const PlanHost host = host_for(hosts.at(0), {.shape = "s", .num_layers = 6});
  EXPECT_TRUE(host.is_measured);
  EXPECT_EQ(host.count, 3);
  EXPECT_DOUBLE_EQ(host.alone.own_decode.at(1), 0.75);
  EXPECT_DOUBLE_EQ(host.alone.own_decode.at(7), 5.25);  // the line from 1 to 4 goes on
  EXPECT_DOUBLE_EQ(host.alone.keys_decode.at(1), 0.375);
  EXPECT_DOUBLE_EQ(host.alone.keys_decode.at(4), 0.75);
  EXPECT_DOUBLE_EQ(host.alone.head.at(9), 0.5);   // once a step
  EXPECT_DOUBLE_EQ(host.alone.expert_call, 0.5);  // of one layer
  ASSERT_EQ(host.together.size(), 1U);
  EXPECT_DOUBLE_EQ(host.together[0].costs.own_prefill.at(64), 3);
  EXPECT_DOUBLE_EQ(host.together[0].costs.key_prefill, 1.5);
  EXPECT_DOUBLE_EQ(host.together[0].costs.exchange_decode.at(4096), 0.75);  // of one layer
  EXPECT_EQ(host.role, HostRole::kWorkers);
  EXPECT_DOUBLE_EQ(host.load_bytes_per_s, 3e9);
  EXPECT_DOUBLE_EQ(host.handling.at(64), 0.25);
  ASSERT_EQ(host.exchange.size(), 1U);
  EXPECT_DOUBLE_EQ(host.exchange[0].curve.at(1024), 0.125);
  EXPECT_FALSE(host_for(hosts.at(0), {.shape = "other", .num_layers = 6}).is_measured);
}

TEST(HostsFile, ComesBackAsItWasWritten) {
  const std::string text = write_hosts(read_hosts(kHostsText, "hosts.json"));
  EXPECT_EQ(write_hosts(read_hosts(text, "again")), text);
}

TEST(HostsFile, WhatCannotBeIsRefusedByName) {
  expect_hosts_refused("{}", {"hosts.json", "format"});
  expect_hosts_refused(hosts_with("ferry-hosts", "ferry-guests"), {"format", "ferry-guests"});
  expect_hosts_refused(hosts_with("\"cores\": 8", "\"cores\": 0"), {"hosts[0]: cores is 0"});
  expect_hosts_refused(hosts_with("\"cores\": 8", "\"sockets\": 8"), {"no cores"});
  expect_hosts_refused(hosts_with("2e10", "-1"), {"read_bytes_per_s is -1"});
  expect_hosts_refused(hosts_with("2e10", "0"), {"read_bytes_per_s is 0"});
  expect_hosts_refused(hosts_with("[4, 1]", "[1, 1]"), {"measured: alone: own_decode", "ascending"});
  expect_hosts_refused(hosts_with("[4, 1]", "[4, -1]"), {"own_decode"});
  expect_hosts_refused(hosts_with("[4, 1]", "4"), {"own_decode"});
  expect_hosts_refused(hosts_with("\"version\": 3", "\"version\": 2"), {"version is 2", "measured anew"});
  expect_hosts_refused(hosts_with("\"role\": \"workers\"", "\"role\": \"everybody\""),
                       {"hosts[0]: role", "everybody", "coordinators"});
  expect_hosts_refused(hosts_with("\"workers\": 2", "\"workers\": 65"), {"exchange[0]: workers is 65"});
  expect_hosts_refused(hosts_with("[{\"workers\": 2, ", "[{\"workers\": 2, \"curve\": []}, {\"workers\": 2, "),
                       {"exchange[1]: workers", "more than in the entry before"});
  expect_hosts_refused(hosts_with("\"costs\": {", "\"cost\": {"), {"together[0]: no costs"});
  expect_hosts_refused(hosts_with("3e9", "0"), {"load_bytes_per_s is 0"});
  expect_hosts_refused(hosts_with("\"layers\": 2", "\"layers\": \"2\""), {"layers"});
}

}  // namespace
}  // namespace ferry
