#include "runtime/server/public_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <string>

namespace ferry {
namespace {

bool is_public(const std::string& text) {
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  if (inet_pton(AF_INET, text.c_str(), &ipv4.sin_addr) == 1) return is_public_address(reinterpret_cast<sockaddr*>(&ipv4));
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &ipv6.sin6_addr), 1) << text;
  return is_public_address(reinterpret_cast<sockaddr*>(&ipv6));
}

TEST(PublicAddress, TheInternetIs) {
  // With the neighbours of networks that are not.
  for (const char* text : {"1.0.0.0",
                           "1.1.1.1",
                           "8.8.8.8",
                           "9.255.255.255",
                           "11.0.0.0",
                           "93.184.216.34",
                           "100.63.255.255",
                           "100.128.0.0",
                           "126.255.255.255",
                           "128.0.0.0",
                           "168.63.129.15",
                           "168.63.129.17",
                           "169.253.255.255",
                           "169.255.0.0",
                           "172.15.255.255",
                           "172.32.0.0",
                           "191.255.255.255",
                           "192.0.1.0",
                           "192.0.3.0",
                           "192.167.255.255",
                           "192.169.0.0",
                           "198.17.255.255",
                           "198.20.0.0",
                           "203.0.112.255",
                           "203.0.114.0",
                           "223.255.255.255",
                           "2000::1",
                           "2001:200::1",
                           "2001:4860:4860::8888",
                           "2001:db7:ffff::1",
                           "2001:db9::1",
                           "2606:4700::1111",
                           "2a00:1450::1",
                           "3ffe::1",
                           "3fff:1000::1",
                           "::ffff:8.8.8.8",
                           "64:ff9b::8.8.8.8",
                           "2002:808:808::1"})
    EXPECT_TRUE(is_public(text)) << text;
}

TEST(PublicAddress, SpecialIpv4NetworksAreNot) {
  for (const char* text :
       {"0.0.0.0",         "0.255.255.255",   "10.0.0.0",    "10.255.255.255",  "100.64.0.0",    "100.100.100.200",
        "100.127.255.255", "127.0.0.0",       "127.0.0.1",   "127.255.255.255", "168.63.129.16", "169.254.0.0",
        "169.254.169.254", "169.254.255.255", "172.16.0.0",  "172.31.255.255",  "192.0.0.0",     "192.0.0.192",
        "192.0.2.1",       "192.88.99.1",     "192.168.0.0", "192.168.255.255", "198.18.0.0",    "198.19.255.255",
        "198.51.100.1",    "203.0.113.255",   "224.0.0.1",   "239.255.255.255", "240.0.0.0",     "255.255.255.255"}) {
    EXPECT_FALSE(is_public(text)) << text;
    EXPECT_FALSE(is_public(std::string("::ffff:") + text)) << text;
    EXPECT_FALSE(is_public(std::string("64:ff9b::") + text)) << text;
  }
}

TEST(PublicAddress, SpecialIpv6NetworksAreNot) {
  for (const char* text : {"::",
                           "::1",
                           "::2",
                           "::127.0.0.1",
                           "::8.8.8.8",
                           "::ffff:0:8.8.8.8",
                           "64:ff9b::1:8.8.8.8",
                           "64:ff9b:1::8.8.8.8",
                           "100::1",
                           "1fff:ffff::1",
                           "2001::1",
                           "2001:0:808:808::1",
                           "2001:10::1",
                           "2001:1ff:ffff::1",
                           "2001:db8::1",
                           "2002:7f00:1::1",
                           "2002:a00:1::1",
                           "2002:a9fe:a9fe::",
                           "3fff::1",
                           "3fff:fff:ffff::1",
                           "4000::1",
                           "5f00::1",
                           "fc00::1",
                           "fd00:ec2::254",
                           "fd20:ce::254",
                           "fdff::1",
                           "fe80::1",
                           "febf::1",
                           "fec0::1",
                           "ff02::1",
                           "ff0e::1"})
    EXPECT_FALSE(is_public(text)) << text;
}

TEST(PublicAddress, OtherFamiliesAreNot) {
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  EXPECT_FALSE(is_public_address(reinterpret_cast<sockaddr*>(&local)));
  const sockaddr none{};
  EXPECT_FALSE(is_public_address(&none));
}

}  // namespace
}  // namespace ferry
