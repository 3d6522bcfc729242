#include "moe/assignment.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "runtime/base/error.h"

namespace ferry {
namespace {

const RankExperts kExperts{{{2}, {0}}, {}, {{1}}};

TEST(Assignment, ComesBackAsItWasTold) {
  const std::vector<std::byte> message = encode_assignment(7, kExperts);
  EXPECT_LE(std::ssize(message), max_assignment_bytes(3, 4));
  const Assignment got = decode_assignment(message, 3, 4);
  EXPECT_EQ(got.epoch, 7U);
  EXPECT_EQ(got.experts, kExperts);
  EXPECT_TRUE(decode_assignment(encode_assignment(0, {}), 3, 4).experts.empty()) << "nothing to do";
}

TEST(Assignment, RefusesWhatIsNone) {
  const auto refused = [](const std::string& what, const std::function<void(std::vector<std::byte>&)>& damage) {
    std::vector<std::byte> message = encode_assignment(7, kExperts);
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
  for (std::size_t bytes = 0; bytes < encode_assignment(7, kExperts).size(); ++bytes)
    refused("", [=](auto& m) { m.resize(bytes); });
}

}  // namespace
}  // namespace ferry
