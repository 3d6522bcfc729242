#include "moe/assignment.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "runtime/base/error.h"

namespace ferry {
namespace {

const RankExperts kExperts{{{2}, {0}}, {}, {{1}}};
const RankExperts kCanaries{{{0}}, {}, {}};

TEST(Assignment, ComesBackAsItWasTold) {
  const std::vector<std::byte> message = encode_assignment({7, kExperts, kCanaries});
  EXPECT_LE(std::ssize(message), max_assignment_bytes(3, 4));
  const Assignment got = decode_assignment(message, 3, 4);
  EXPECT_EQ(got.epoch, 7U);
  EXPECT_EQ(got.experts, kExperts);
  EXPECT_EQ(got.canaries, kCanaries);
  EXPECT_TRUE(decode_assignment(encode_assignment({}), 3, 4).experts.empty()) << "nothing to do";
}

TEST(Assignment, RefusesWhatIsNone) {
  const auto refused = [](const std::string& what, const std::function<void(std::vector<std::byte>&)>& damage) {
    std::vector<std::byte> message = encode_assignment({7, kExperts, kCanaries});
    damage(message);
    try {
      decode_assignment(message, 3, 4);
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInternal);
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  const auto set = [](std::size_t word, int32_t value) {
    return [=](std::vector<std::byte>& m) { std::memcpy(m.data() + sizeof(WireHeader) + 4 * word, &value, sizeof value); };
  };
  refused("bytes left 0", [](auto& m) { m.resize(m.size() - 4); });
  refused("bytes behind it 4", [](auto& m) { m.resize(m.size() + 4); });
  refused("number of layers 2; allowed: 0 or 3", set(0, 2));
  refused("number of layers 4; allowed: 0 to 3", set(0, 4));
  refused("experts of a layer -1", set(1, -1));
  refused("experts of a layer 5; allowed: 0 to 4", set(1, 5));
  refused("expert 4; allowed: 0 to 3", set(4, 4));
  refused("twice expert 2", set(5, 2));
  refused("kind", [](auto& m) { m[6] = std::byte{1}; });
  for (std::size_t bytes = 0; bytes < encode_assignment({7, kExperts, kCanaries}).size(); ++bytes)
    refused("", [=](auto& m) { m.resize(bytes); });
}

TEST(Preparation, ComesBackAsItWasTold) {
  const Preparation done{.epoch = 9, .canaries = {1, ~uint64_t{0}}, .complaint = {}, .voice = ~uint64_t{2}};
  const std::vector<std::byte> message = encode_preparation(done);
  EXPECT_LE(std::ssize(message), max_preparation_bytes(1, 2));
  const Preparation got = decode_preparation(message);
  EXPECT_EQ(got.epoch, 9U);
  EXPECT_EQ(got.canaries, done.canaries);
  EXPECT_EQ(got.voice, done.voice);
  EXPECT_EQ(got.complaint, "");
  EXPECT_TRUE(decode_preparation(encode_preparation({.epoch = 9})).canaries.empty());
  const Preparation failed = decode_preparation(encode_preparation({9, {}, std::string(5000, 'x')}));
  EXPECT_EQ(failed.complaint, std::string(kMaxReasonBytes, 'x'));
}

TEST(Preparation, RefusesWhatIsNone) {
  const std::vector<std::byte> message = encode_preparation({9, {1, 2}, {}});
  for (std::size_t bytes = 0; bytes < message.size(); ++bytes) {
    if (bytes > sizeof(WireHeader) && (bytes - sizeof(WireHeader)) % 8 == 0) continue;  // of fewer experts
    EXPECT_THROW(decode_preparation(std::span(message).first(bytes)), Error) << bytes;
  }
  EXPECT_THROW(decode_preparation(encode_assignment({7, kExperts, {}})), Error);
  std::vector<std::byte> complaint(sizeof(WireHeader) + kMaxReasonBytes + 1);
  write_header({.kind = WireKind::kPrepared, .flags = kCannotPrepare}, complaint);
  EXPECT_THROW(decode_preparation(complaint), Error);
  complaint.resize(sizeof(WireHeader));
  EXPECT_FALSE(decode_preparation(complaint).complaint.empty()) << "a complaint without a word is one";
}

}  // namespace
}  // namespace ferry
