#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/group.h"
#include "runtime/base/error.h"
#include "tests/support/in_good_time.h"

// What the tests of comm/ share: how to play a test on every rank, and small helpers.

namespace ferry {

/// How to play a test on every rank of a group.
struct GroupCluster {
  using Body = std::function<void(Group&)>;

  std::string name;
  bool notices_departure = true;  // whether waiting for a rank that aborted fails before the deadline
  bool survives_overflow = true;  // whether a large message for a smaller receive is an Error
  /// Calls the body once for each rank that lives in this process, with a fresh group, and returns when the ranks of all
  /// processes are done.
  std::function<void(const Body&)> run;
};

namespace suite {

using Bytes = std::vector<std::byte>;

/// A deadline that passes. Nothing else may have to happen before.
inline Deadline in_milliseconds(int milliseconds) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
}
inline Rank next(const Group& group) { return Rank{(group.rank().value + 1) % group.size()}; }
inline Rank previous(const Group& group) { return Rank{(group.rank().value + group.size() - 1) % group.size()}; }
inline Rank last(const Group& group) { return Rank{group.size() - 1}; }

// Bytes that differ between seeds and along the message. All but the first period are copied, which is fast in any build.
inline Bytes pattern(std::size_t size, int seed) {
  constexpr std::size_t kPeriod = 251 * 256;
  Bytes bytes(size);
  for (std::size_t i = 0; i < std::min(size, kPeriod); ++i)
    bytes[i] = static_cast<std::byte>((i * 31 + i / 251 + static_cast<std::size_t>(seed) * 17) & 255);
  for (std::size_t i = kPeriod; i < size; i += kPeriod) std::memcpy(&bytes[i], bytes.data(), std::min(kPeriod, size - i));
  return bytes;
}

// EXPECT_EQ would print megabytes.
inline void expect_same(const Bytes& got, const Bytes& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  if (got.empty() || std::memcmp(got.data(), want.data(), got.size()) == 0) return;
  const auto [at, unused] = std::mismatch(got.begin(), got.end(), want.begin());
  ADD_FAILURE() << what << " differs from byte " << (at - got.begin()) << " on";
}

// Runs `call`, which must throw Error with `code` and a message that contains `part`.
inline void expect_error(ErrorCode code, const std::string& part, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "expected " << error_code_name(code) << " with '" << part << "'";
  } catch (const Error& error) {
    EXPECT_STREQ(error_code_name(error.code()), error_code_name(code)) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

inline std::string rank_name(Rank rank) { return "rank " + std::to_string(rank.value); }

}  // namespace suite

}  // namespace ferry
