#include "runtime/elastic/socket_door.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "comm/rendezvous/join.h"
#include "moe/placement/placement_types.h"
#include "moe/wire.h"
#include "runtime/elastic/join_key.h"
#include "tests/support/eventually.h"
#include "tests/support/expect_error.h"
#include "tests/support/in_good_time.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

constexpr const char* kFingerprint = "0123456789abcdef";
constexpr const char* kOtherFingerprint = "fedcba9876543210";

const std::vector<Term> kInstructions{{"--dtype bf16"}, {"--device cpu", /*may_differ=*/true}};

std::string local_door() {
  static std::atomic<int> number{0};
  return "unix:ferry-door-test-" + std::to_string(getpid()) + "-" + std::to_string(number++);
}

/// What a worker says of itself.
std::vector<std::byte> introduced(const std::vector<Term>& terms) {
  return encode_report({.complaint = {}, .terms = terms, .place = "node7"});
}

DoorRules rules(std::vector<bool> taken) {
  return {.introduction = introduction_terms(kFingerprint), .instructions = kInstructions, .taken = std::move(taken)};
}

/// Of a process that nobody holds up, so that its first try counts.
Joined come_with(const Door& door, const std::string& key, const std::vector<std::byte>& introduction) {
  return join(door.address(), key, 1, introduction, test::in_good_time(), {}, kTestLimit);
}
Joined come(const Door& door, const std::string& key = "", const std::string& fingerprint = kFingerprint) {
  return come_with(door, key, introduced(introduction_terms(fingerprint)));
}

/// Who has come, once somebody has: a newcomer may know before the door does.
std::vector<Door::Guest> await_guests(Door& door) {
  std::vector<Door::Guest> guests;
  eventually(
      [&] {
        guests = door.take();
        return !guests.empty();
      },
      "a guest");
  return guests;
}

TEST(SocketDoor, WhoComesGetsInstructionsAndTheFirstFreeSeat) {
  for (const std::string& address : {local_door(), std::string("127.0.0.1:0")}) {
    StreamHub hub;
    SocketDoor door({.address = address, .key_file = {}}, rules({true, false, true}), hub);
    EXPECT_EQ(door.address() == address, address.starts_with("unix:")) << door.address();
    EXPECT_TRUE(door.take().empty());
    for (const int32_t seat : {1, 3, 4}) {
      Joined joined = come(door);
      EXPECT_EQ(joined.member, Rank{seat});
      EXPECT_EQ(decode_report(joined.instructions, Rank{0}).terms, kInstructions);
      const std::vector<Door::Guest> guests = await_guests(door);
      ASSERT_EQ(guests.size(), 1U);
      EXPECT_EQ(guests[0].rank, Rank{seat});
      EXPECT_EQ(guests[0].home.host, "node7");
      EXPECT_TRUE(guests[0].home.address.starts_with(address.starts_with("unix:") ? "unix" : "127.0.0.1:"))
          << guests[0].home.address;
      // It is one connection.
      StreamHub worker_hub;
      const std::unique_ptr<Link> link = worker_hub.adopt(std::move(joined.socket), Rank{0});
      const std::byte sent{42};
      const auto send = guests[0].link->isend(std::span(&sent, 1), kRequestTag);
      std::byte got{};
      const auto receive = link->irecv(std::span(&got, 1), kRequestTag, Fit::kExact);
      EXPECT_EQ(link->wait(*receive, test::in_good_time()), 1U);
      EXPECT_EQ(got, sent);
    }
    EXPECT_TRUE(door.take().empty());
  }
}

TEST(SocketDoor, AnotherCheckpointIsRefusedWithBothFingerprintsAndTakesNoSeat) {
  StreamHub hub;
  SocketDoor door({.address = local_door(), .key_file = {}}, rules({true}), hub);
  test::expect_error([&] { come(door, "", kOtherFingerprint); }, ErrorCode::kFailedPrecondition,
                     {"refused", kFingerprint, kOtherFingerprint, "allowed: the same"});
  EXPECT_EQ(come(door).member, Rank{1});
}

TEST(SocketDoor, AnotherProgramIsRefusedByName) {
  StreamHub hub;
  SocketDoor door({.address = local_door(), .key_file = {}}, rules({true}), hub);
  std::vector<Term> terms = introduction_terms(kFingerprint);
  ASSERT_GE(terms.size(), 2U);
  const auto expect_refused = [&](const std::vector<Term>& said, const std::vector<std::string>& parts) {
    test::expect_error([&] { come_with(door, "", introduced(said)); }, ErrorCode::kFailedPrecondition, parts);
  };
  terms[0].text = "ferry of yesterday";
  expect_refused(terms, {"ferry of yesterday", introduction_terms(kFingerprint)[0].text});
  terms.resize(1);
  terms[0] = introduction_terms(kFingerprint)[0];
  expect_refused(terms, {"nothing", kFingerprint});
  terms = introduction_terms(kFingerprint);
  terms.push_back({"and more"});
  expect_refused(terms, {"more of itself"});
  test::expect_error([&] { come_with(door, "", {}); }, ErrorCode::kFailedPrecondition, {"refused"});
}

TEST(SocketDoor, AFreedSeatIsGivenAgain) {
  StreamHub hub;
  SocketDoor door({.address = local_door(), .key_file = {}}, rules({true, true, true}), hub);
  EXPECT_EQ(come(door).member, Rank{3});
  door.free_seat(Rank{2});
  EXPECT_EQ(come(door).member, Rank{2});
  door.free_seat(Rank{3});
  EXPECT_EQ(come(door).member, Rank{3});
  EXPECT_EQ(come(door).member, Rank{4});
}

TEST(SocketDoor, ThereAreNoMoreSeatsThanWorkers) {
  std::vector<bool> taken(static_cast<std::size_t>(kMaxWorkers), true);  // the coordinator and all but one worker
  StreamHub hub;
  SocketDoor door({.address = local_door(), .key_file = {}}, rules(taken), hub);
  EXPECT_EQ(come(door).member, Rank{static_cast<int32_t>(kMaxWorkers)});
  test::expect_error([&] { come(door); }, ErrorCode::kFailedPrecondition, {"there are 64 workers"});
}

TEST(SocketDoor, OnlyWhoHasTheKeyIsLetIn) {
  test::TempFolder folder;
  std::ofstream(folder.path() / "key") << "a key of some length\n";
  StreamHub hub;
  SocketDoor door({.address = local_door(), .key_file = folder.path() / "key"}, rules({true}), hub);
  test::expect_error([&] { come(door, "a key of some other length"); }, ErrorCode::kFailedPrecondition,
                     {"the key is not the one"});
  test::expect_error([&] { come(door); }, ErrorCode::kFailedPrecondition, {"the key is not the one"});
  EXPECT_EQ(come(door, "a key of some length").member, Rank{1}) << "and the others have taken no seat";
}

TEST(SocketDoor, OnThisHostOnlyTheUsersOwnProcessesAreLetInByDefault) {
  for (const std::string& address : {local_door(), std::string("127.0.0.1:0")}) {
    const test::TempFolder folder;
    const std::filesystem::path own = folder.path() / "own";
    StreamHub hub;
    SocketDoor door({.address = address, .key_file = {}, .own_key_folder = own}, rules({true}), hub);
    test::expect_error([&] { come(door); }, ErrorCode::kFailedPrecondition, {"the key is not the one"});
    test::expect_error([&] { come(door, own_join_key(folder.path() / "somebody")); }, ErrorCode::kFailedPrecondition,
                       {"the key is not the one", "the same user on the same host"});
    EXPECT_EQ(come(door, join_key_for(door.address(), {.key_file = {}, .own_folder = own})).member, Rank{1});
  }
  StreamHub hub;
  const test::TempFolder folder;
  const ElasticOptions options{.address = "0.0.0.0:0", .key_file = {}, .own_key_folder = folder.path() / "own"};
  const std::vector<std::string> parts{"--elastic: ", "0.0.0.0:0", "without a key", "--join-key FILE", "openssl rand -hex 32"};
  test::expect_error([&] { SocketDoor(options, rules({true}), hub); }, ErrorCode::kInvalidArgument, parts);
  test::expect_error([&] { check_socket_door(options); }, ErrorCode::kInvalidArgument, parts);
}

TEST(SocketDoor, WhatIsWrongWithTheAddressOrTheKeySaysOfWhichOption) {
  StreamHub hub;
  const auto refuse = [&](const ElasticOptions& options, ErrorCode code, const std::vector<std::string>& parts) {
    test::expect_error([&] { SocketDoor(options, rules({true}), hub); }, code, parts);
    test::expect_error([&] { check_socket_door(options); }, code, parts);
  };
  refuse({.address = "here", .key_file = {}}, ErrorCode::kInvalidArgument, {"--elastic: ", "here"});
  refuse({.address = "0.0.0.0:0", .key_file = {}}, ErrorCode::kInvalidArgument, {"--elastic: "});
  refuse({.address = local_door(), .key_file = "/nowhere/key"}, ErrorCode::kNotFound, {"--elastic: ", "/nowhere/key"});
  const std::string address = local_door();
  check_socket_door({.address = address, .key_file = {}});
  const SocketDoor first({.address = address, .key_file = {}}, rules({true}), hub);
  refuse({.address = address, .key_file = {}}, ErrorCode::kFailedPrecondition, {"--elastic: "});
  check_socket_door({});
}

}  // namespace
}  // namespace ferry
