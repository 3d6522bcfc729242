#include "runtime/net/own_hosts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "runtime/base/lower_case.h"
#include "runtime/net/hosts.h"

namespace ferry {
namespace {

using Hosts = std::vector<std::string>;

TEST(OwnHosts, HaveNamesInFrontOfAddresses) {
  EXPECT_EQ(hosts_of("GPU1", {"Cluster.example", "example"}, {"10.0.0.5", "2001:db8::5", "10.0.0.5"}),
            (Hosts{"gpu1", "gpu1.local", "gpu1.cluster.example", "gpu1.example", "10.0.0.5", "2001:db8::5"}));
  EXPECT_EQ(hosts_of("gpu1.cluster.example", {"cluster.example"}, {}), (Hosts{"gpu1.cluster.example", "gpu1", "gpu1.local"}));
  EXPECT_EQ(hosts_of("", {"example", ""}, {"", "10.0.0.5"}), (Hosts{"10.0.0.5"}));
}

TEST(OwnHosts, AreThisMachines) {
  const Hosts hosts = own_hosts();
  std::array<char, 256> name{};
  ASSERT_EQ(::gethostname(name.data(), name.size() - 1), 0);
  EXPECT_TRUE(std::ranges::find(hosts, lower_case(std::string(name.data()))) != hosts.end()) << name.data();
  for (const std::string& host : hosts) EXPECT_TRUE(host == "localhost" || !is_loopback_host(host)) << host;
}

}  // namespace
}  // namespace ferry
