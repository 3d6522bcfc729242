#include "comm/rendezvous/rendezvous.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous/join.h"
#include "comm/rendezvous/join_wire.h"
#include "comm/stream/stream_hub.h"
#include "runtime/net/host_port.h"
#include "tests/comm/group_cluster.h"

namespace ferry {
namespace {

using suite::Bytes;
using suite::in_milliseconds;
using suite::in_seconds;
using suite::pattern;

constexpr const char* kKey = "correct horse";

/// Admits everybody but those whose introduction is empty, and keeps their links.
class Coordinator {
 public:
  explicit Coordinator(const std::string& key = kKey, const std::string& address = "127.0.0.1:0")
      : rendezvous_(
            address, key, [this](const Newcomer& newcomer) { return admit(newcomer); },
            [this](const Rendezvous::Place& place, FileDescriptor socket) { welcome(place, std::move(socket)); }) {}

  const std::string& address() const { return rendezvous_.address(); }

  Link& link(Rank member) {
    std::unique_lock lock(mutex_);
    joined_.wait(lock, [&] { return links_.contains(member.value); });
    return *links_.at(member.value);
  }
  void drop(Rank member) {
    link(member);
    const std::scoped_lock lock(mutex_);
    links_.erase(member.value);
  }

 private:
  Rendezvous::Place admit(const Newcomer& newcomer) {
    if (newcomer.introduction.empty()) throw Error(ErrorCode::kFailedPrecondition, "it says nothing of itself");
    const std::scoped_lock lock(mutex_);
    Bytes told = newcomer.introduction;
    std::ranges::reverse(told);
    return {.member = Rank{next_member_++}, .epoch = static_cast<uint32_t>(newcomer.incarnation), .instructions = told};
  }
  void welcome(const Rendezvous::Place& place, FileDescriptor socket) {
    const std::scoped_lock lock(mutex_);
    links_[place.member.value] = hub_.adopt(std::move(socket), place.member);
    joined_.notify_all();
  }

  StreamHub hub_;
  std::mutex mutex_;
  std::condition_variable joined_;
  int next_member_ = 1;
  std::map<int, std::unique_ptr<Link>> links_;
  Rendezvous rendezvous_;
};

FileDescriptor connected_to(const std::string& address) {
  FileDescriptor made(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(static_cast<uint16_t>(parse_host_port("test", address).port));
  EXPECT_EQ(connect(made.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place)), 0);
  return made;
}

int num_open_files() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(RendezvousTest, NewcomersGetAPlaceAndALink) {
  Coordinator coordinator;
  StreamHub hub;
  for (int i = 1; i <= 3; ++i) {
    const Bytes introduction = pattern(1000, i);
    Joined joined = join(coordinator.address(), kKey, static_cast<uint64_t>(40 + i), introduction, in_seconds(30));
    EXPECT_EQ(joined.member, Rank{i});
    EXPECT_EQ(joined.epoch, static_cast<uint32_t>(40 + i));
    std::ranges::reverse(joined.instructions);
    suite::expect_same(joined.instructions, introduction, "the instructions");
    const auto link = hub.adopt(std::move(joined.socket), Rank{0});
    Link& other = coordinator.link(joined.member);
    const Bytes request = pattern(100000, i);
    const auto send = other.isend(request, 1);
    Bytes got(request.size());
    link->wait(*link->irecv(got, 1, Fit::kExact), in_seconds(30));
    other.wait(*send, in_seconds(30));
    suite::expect_same(got, request, "a message over the link");
  }
}

TEST(RendezvousTest, WhoHasNotTheKeyIsRefused) {
  Coordinator coordinator;
  for (const std::string key : {"", "wrong horse"}) {
    suite::expect_error(ErrorCode::kFailedPrecondition, "refused: the key is not the one",
                        [&] { join(coordinator.address(), key, 1, pattern(5, 1), in_seconds(30)); });
  }
}

TEST(RendezvousTest, TheOwnersReasonIsTold) {
  Coordinator coordinator;
  suite::expect_error(ErrorCode::kFailedPrecondition, "cannot join " + coordinator.address() + ": refused: it says nothing",
                      [&] { join(coordinator.address(), kKey, 1, {}, in_seconds(30)); });
}

TEST(RendezvousTest, ACoordinatorWithoutTheKeyIsNotBelieved) {
  // It admits whoever comes, so it has to be asked for its own proof.
  const FileDescriptor listener(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(place);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&place), size), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&place), &size), 0);
  std::thread impostor([&] {
    const FileDescriptor guest(accept(listener.get(), nullptr, nullptr));
    const Bytes challenge = encode_challenge(make_nonce());
    EXPECT_EQ(write(guest.get(), challenge.data(), challenge.size()), std::ssize(challenge));
    Bytes hello(kHelloHeadBytes + 5);
    EXPECT_EQ(recv(guest.get(), hello.data(), hello.size(), MSG_WAITALL), std::ssize(hello));
    const Bytes answer = encode_answer({.member = Rank{1}, .epoch = 1, .bytes = {}}, JoinNonce{}, "guessed");
    EXPECT_EQ(write(guest.get(), answer.data(), answer.size()), std::ssize(answer));
  });
  suite::expect_error(ErrorCode::kFailedPrecondition, "does not have the key", [&] {
    join("127.0.0.1:" + std::to_string(ntohs(place.sin_port)), kKey, 1, pattern(5, 1), in_seconds(30));
  });
  impostor.join();
}

TEST(RendezvousTest, TheSilentAndTheNonsensicalKeepNobodyWaiting) {
  Coordinator coordinator;
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connected_to(coordinator.address()));
  for (const FileDescriptor& guest : silent) {
    const std::string nonsense(1000, '?');
    EXPECT_EQ(write(guest.get(), nonsense.data(), nonsense.size()), std::ssize(nonsense));
    if (&guest == &silent[9]) break;
  }
  EXPECT_EQ(join(coordinator.address(), kKey, 1, pattern(5, 1), in_seconds(30)).member, Rank{1});
}

TEST(RendezvousTest, AnIntroductionHasABound) {
  Coordinator coordinator;
  const FileDescriptor guest = connected_to(coordinator.address());
  Bytes challenge(kChallengeBytes);
  ASSERT_EQ(recv(guest.get(), challenge.data(), challenge.size(), MSG_WAITALL), std::ssize(challenge));
  Bytes hello = encode_hello({.introduction = pattern(5, 1)}, decode_challenge(challenge), kKey);
  const uint64_t huge = uint64_t{1} << 40;
  std::memcpy(hello.data() + 80, &huge, sizeof(huge));
  ASSERT_EQ(write(guest.get(), hello.data(), hello.size()), std::ssize(hello));
  Bytes head(kAnswerHeadBytes);
  ASSERT_EQ(recv(guest.get(), head.data(), head.size(), MSG_WAITALL), std::ssize(head));
  Bytes reason(answer_rest(head));
  ASSERT_EQ(recv(guest.get(), reason.data(), reason.size(), MSG_WAITALL), std::ssize(reason));
  const std::string text(reinterpret_cast<const char*>(reason.data()), reason.size());
  EXPECT_NE(text.find("1099511627776 bytes; allowed: at most 65536"), std::string::npos) << text;
}

TEST(RendezvousTest, ANewcomerWaitsForItsCoordinator) {
  std::string address;
  { address = Coordinator().address(); }
  suite::expect_error(ErrorCode::kDeadlineExceeded, "cannot join " + address,
                      [&] { join(address, kKey, 1, pattern(5, 1), in_milliseconds(120)); });
  std::unique_ptr<Coordinator> late;
  std::thread starter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    late = std::make_unique<Coordinator>(kKey, address);
  });
  EXPECT_EQ(join(address, kKey, 1, pattern(5, 1), in_seconds(30)).member, Rank{1});
  starter.join();
}

TEST(RendezvousTest, WithoutAKeyOnlyThisHostMayJoin) {
  suite::expect_error(ErrorCode::kInvalidArgument, "other hosts can reach, without a key",
                      [&] { Coordinator coordinator("", "0.0.0.0:0"); });
  Coordinator open("");
  EXPECT_EQ(join(open.address(), "", 1, pattern(5, 1), in_seconds(30)).member, Rank{1});
}

TEST(RendezvousTest, ComingAndGoingLeavesNothingBehind) {
  Coordinator coordinator;
  StreamHub hub;
  const auto come_and_go = [&] {
    Joined joined = join(coordinator.address(), kKey, 1, pattern(5, 1), in_seconds(30));
    hub.adopt(std::move(joined.socket), Rank{0}).reset();
    coordinator.drop(joined.member);
  };
  come_and_go();
  const int before = num_open_files();
  for (int i = 0; i < 100; ++i) come_and_go();
  // The hubs' threads let go of a link when they next look.
  for (int i = 0; i < 3000 && num_open_files() != before; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(num_open_files(), before);
}

}  // namespace
}  // namespace ferry
