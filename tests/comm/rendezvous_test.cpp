#include "comm/rendezvous/rendezvous.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <limits>
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
#include "tests/comm/patient_rendezvous.h"
#include "tests/support/asleep.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

using suite::Bytes;
using suite::kPatient;
using suite::pattern;

constexpr const char* kKey = "correct horse";

/// Admits everybody but those whose introduction is empty, and keeps their links.
class Coordinator {
 public:
  explicit Coordinator(const std::string& key = kKey, const std::string& address = "127.0.0.1:0",
                       RendezvousPatience patience = kPatient)
      : rendezvous_(
            address, key, [this](const Newcomer& newcomer) { return admit(newcomer); },
            [this](const Rendezvous::Place& place, FileDescriptor socket) { welcome(place, std::move(socket)); }, patience) {}

  const std::string& address() const { return rendezvous_.address(); }

  Link& link(Rank member) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(joined_.wait_for(lock, kTestLimit, [&] { return links_.contains(member.value); })) << member.value;
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

/// Joins as a process does that nobody holds up.
Joined join_patiently(const std::string& address, const std::string& key, uint64_t incarnation, const Bytes& introduction,
                      const std::stop_token& stop = {}) {
  return join(address, key, incarnation, introduction, test::in_good_time(), stop, kTestLimit);
}

/// From an address of this host.
FileDescriptor connected_to(const std::string& address, const char* from = "127.0.0.1") {
  FileDescriptor made(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  inet_pton(AF_INET, from, &place.sin_addr);
  EXPECT_EQ(bind(made.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place)), 0) << from;
  place = {};
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
    Joined joined = join_patiently(coordinator.address(), kKey, static_cast<uint64_t>(40 + i), introduction);
    EXPECT_EQ(joined.member, Rank{i});
    EXPECT_EQ(joined.epoch, static_cast<uint32_t>(40 + i));
    std::ranges::reverse(joined.instructions);
    suite::expect_same(joined.instructions, introduction, "the instructions");
    const auto link = hub.adopt(std::move(joined.socket), Rank{0});
    Link& other = coordinator.link(joined.member);
    const Bytes request = pattern(100000, i);
    const auto send = other.isend(request, 1);
    Bytes got(request.size());
    link->wait(*link->irecv(got, 1, Fit::kExact), test::in_good_time());
    other.wait(*send, test::in_good_time());
    suite::expect_same(got, request, "a message over the link");
  }
}

TEST(RendezvousTest, WhoHasNotTheKeyIsRefused) {
  Coordinator coordinator;
  for (const std::string key : {"", "wrong horse"}) {
    suite::expect_error(ErrorCode::kFailedPrecondition, "refused: the key is not the one",
                        [&] { join_patiently(coordinator.address(), key, 1, pattern(5, 1)); });
  }
}

TEST(RendezvousTest, TheOwnersReasonIsTold) {
  Coordinator coordinator;
  suite::expect_error(ErrorCode::kFailedPrecondition, "cannot join " + coordinator.address() + ": refused: it says nothing",
                      [&] { join_patiently(coordinator.address(), kKey, 1, {}); });
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
  suite::expect_error(ErrorCode::kFailedPrecondition, "does not have the key",
                      [&] { join_patiently("127.0.0.1:" + std::to_string(ntohs(place.sin_port)), kKey, 1, pattern(5, 1)); });
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
  EXPECT_EQ(join_patiently(coordinator.address(), kKey, 1, pattern(5, 1)).member, Rank{1});
}

/// What somebody hears first.
Bytes hear_challenge(const FileDescriptor& guest) {
  Bytes challenge(kChallengeBytes);
  EXPECT_EQ(recv(guest.get(), challenge.data(), challenge.size(), MSG_WAITALL), std::ssize(challenge));
  return challenge;
}

/// Connections that say nothing, of which the last ones that fit are let in.
std::vector<FileDescriptor> idle_crowd(const std::string& address, int size) {
  std::vector<FileDescriptor> crowd;
  for (int i = 0; i < size; ++i) crowd.push_back(connected_to(address));
  hear_challenge(crowd.back());
  return crowd;
}

/// Until it ends.
bool is_open(const FileDescriptor& guest) {
  Bytes said(kChallengeBytes);
  ssize_t got = 1;
  while (got > 0) got = recv(guest.get(), said.data(), said.size(), MSG_DONTWAIT);
  return got < 0 && errno == EAGAIN;
}

/// In which everybody has to give way at once.
constexpr RendezvousPatience kNoGrace{.proof = kTestLimit, .join = kTestLimit, .grace = std::chrono::milliseconds(0)};

TEST(RendezvousTest, ManyIdleConnectionsKeepNobodyOut) {
  Coordinator coordinator(kKey, "127.0.0.1:0", kNoGrace);
  const std::vector<FileDescriptor> crowd = idle_crowd(coordinator.address(), 3 * Rendezvous::kMaxNewcomers);
  for (int i = 1; i <= 5; ++i) EXPECT_EQ(join_patiently(coordinator.address(), kKey, 1, pattern(5, 1)).member, Rank{i});
  const auto num_open = std::ranges::count_if(crowd, is_open);
  EXPECT_GT(num_open, 0);
  EXPECT_LT(num_open, Rendezvous::kMaxNewcomers) << "some gave way";
}

TEST(RendezvousTest, WhoHasJustComeNeedNotGiveWay) {
  const Coordinator coordinator;
  std::vector<FileDescriptor> crowd = idle_crowd(coordinator.address(), Rendezvous::kMaxNewcomers);
  const FileDescriptor next = connected_to(coordinator.address());
  test::await_quiet();
  Bytes challenge(kChallengeBytes);
  EXPECT_LT(recv(next.get(), challenge.data(), challenge.size(), MSG_DONTWAIT), 0) << "there is no place";
  crowd.erase(crowd.begin() + 7);
  hear_challenge(next);
  EXPECT_EQ(std::ranges::count_if(crowd, is_open), std::ssize(crowd));
}

TEST(RendezvousTest, WhoProvesNothingIsSentAway) {
  Coordinator coordinator(kKey, "127.0.0.1:0", {.proof = std::chrono::milliseconds(20)});
  const FileDescriptor silent = connected_to(coordinator.address());
  eventually([&] { return !is_open(silent); }, "the end of a silent connection");
}

/// Many more come from one address than there are places for.
TEST(RendezvousTest, WhoComesFromElsewhereNeedNotGiveWay) {
  const Coordinator coordinator(kKey, "0.0.0.0:0", kNoGrace);
  const std::string address = "127.0.0.1" + coordinator.address().substr(coordinator.address().rfind(':'));
  const FileDescriptor stranger = connected_to(address, "127.0.0.2");
  const Bytes challenge = hear_challenge(stranger);
  const std::vector<FileDescriptor> crowd = idle_crowd(address, 2 * Rendezvous::kMaxNewcomers);
  EXPECT_FALSE(is_open(crowd.front())) << "the first of the many has given way";
  const Bytes hello = encode_hello({.introduction = pattern(5, 1)}, decode_challenge(challenge), kKey);
  ASSERT_EQ(send(stranger.get(), hello.data(), hello.size(), MSG_NOSIGNAL), std::ssize(hello));
  Bytes head(kAnswerHeadBytes);
  EXPECT_EQ(recv(stranger.get(), head.data(), head.size(), MSG_WAITALL), std::ssize(head));
}

TEST(RendezvousTest, AnIntroductionHasABound) {
  Coordinator coordinator;
  const FileDescriptor guest = connected_to(coordinator.address());
  Bytes hello = encode_hello({.introduction = pattern(5, 1)}, decode_challenge(hear_challenge(guest)), kKey);
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
  const std::string address = "unix:ferry-rendezvous-test-" + std::to_string(getpid());
  suite::expect_error(ErrorCode::kDeadlineExceeded, "cannot join " + address,
                      [&] { join(address, kKey, 1, pattern(5, 1), suite::in_milliseconds(120)); });
  std::unique_ptr<Coordinator> late;
  std::thread starter([&, newcomer = gettid()] {
    test::await_asleep(newcomer);  // between two tries
    late = std::make_unique<Coordinator>(kKey, address);
  });
  EXPECT_EQ(join_patiently(address, kKey, 1, pattern(5, 1)).member, Rank{1});
  starter.join();
}

TEST(RendezvousTest, WhoIsNotToJoinAnyMoreStopsCalling) {
  // Nobody is there, or somebody who says nothing.
  const FileDescriptor silent(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(place);
  ASSERT_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&place), size), 0);
  ASSERT_EQ(getsockname(silent.get(), reinterpret_cast<sockaddr*>(&place), &size), 0);
  for (const bool listens : {false, true}) {
    if (listens) {
      ASSERT_EQ(listen(silent.get(), 1), 0);
    }
    std::stop_source stop;
    std::thread stopper([&, newcomer = gettid()] {
      test::await_asleep(newcomer);
      stop.request_stop();
    });
    suite::expect_error(ErrorCode::kCancelled, "not to, any more", [&] {
      join_patiently("127.0.0.1:" + std::to_string(ntohs(place.sin_port)), kKey, 1, pattern(5, 1), stop.get_token());
    });
    stopper.join();
  }
}

TEST(RendezvousTest, WithoutAKeyOnlyThisHostMayJoin) {
  suite::expect_error(ErrorCode::kInvalidArgument, "other hosts can reach, without a key",
                      [&] { Coordinator coordinator("", "0.0.0.0:0"); });
  Coordinator open("");
  EXPECT_EQ(join_patiently(open.address(), "", 1, pattern(5, 1)).member, Rank{1});
}

TEST(RendezvousTest, APlaceThatNoMemberHasIsRefused) {
  const JoinNonce nonce = make_nonce();
  const auto place = [&](int32_t member) {
    return decode_answer(encode_answer({.member = Rank{member}, .epoch = 1, .bytes = {}}, nonce, kKey), nonce, kKey).member;
  };
  EXPECT_EQ(place(0), Rank{0});
  EXPECT_EQ(place(kMaxMember), Rank{kMaxMember});
  for (const int32_t wrong : {-1, kMaxMember + 1, std::numeric_limits<int32_t>::min()})
    suite::expect_error(ErrorCode::kFailedPrecondition, "gives the place " + std::to_string(wrong) + "; allowed: 0 to 65535",
                        [&] { place(wrong); });
}

TEST(RendezvousTest, ComingAndGoingLeavesNothingBehind) {
  Coordinator coordinator;
  StreamHub hub;
  const auto come_and_go = [&] {
    Joined joined = join_patiently(coordinator.address(), kKey, 1, pattern(5, 1));
    hub.adopt(std::move(joined.socket), Rank{0}).reset();
    coordinator.drop(joined.member);
  };
  come_and_go();
  const int before = num_open_files();
  for (int i = 0; i < 100; ++i) come_and_go();
  // The hubs' threads let go of a link when they next look: of the first one, perhaps, after it was counted.
  eventually([&] { return num_open_files() <= before; }, "the end of all links",
             [] { return std::to_string(num_open_files()) + " open files"; });
}

}  // namespace
}  // namespace ferry
