#include "profiler/archive/packed_records.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "profiler/span_record.h"
#include "runtime/base/error.h"
#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using Parts = std::vector<std::vector<std::byte>>;

std::vector<std::size_t> sizes_of(const Parts& parts) {
  std::vector<std::size_t> sizes;
  for (const std::vector<std::byte>& part : parts) sizes.push_back(part.size());
  return sizes;
}

/// Records as a step has them, behind a head of `head_bytes`.
std::vector<std::byte> some_records(std::size_t count, std::size_t head_bytes) {
  std::mt19937 random(3);
  std::vector<SpanRecord> records(count);
  uint64_t ticks = 1'000'000'000'000;
  for (std::size_t i = 0; i < count; ++i) {
    records[i] = {.begin = ticks, .end = ticks + random() % 5000, .step = 400, .layer = static_cast<int16_t>(i % 40), .a = 4};
    ticks = records[i].end + random() % 200;
  }
  std::vector<std::byte> bytes(head_bytes + count * sizeof(SpanRecord), std::byte{'h'});
  std::memcpy(bytes.data() + head_bytes, records.data(), count * sizeof(SpanRecord));
  return bytes;
}

TEST(PackedRecords, ComeOutAsTheyWentIn) {
  const std::vector<Parts> cases = {{},
                                    {{}},
                                    {{}, some_records(1, 0), {}},
                                    {some_records(3, 1), some_records(100, 449)},
                                    {some_records(0, 31)},
                                    {some_records(0, 33), some_records(5000, 7)}};
  for (const Parts& parts : cases) EXPECT_EQ(unpack_parts(pack_parts(parts), sizes_of(parts), "here"), parts);
}

TEST(PackedRecords, AreAThirdAtMost) {
  const Parts parts = {some_records(2000, 449)};
  EXPECT_LT(3 * pack_parts(parts).size(), parts[0].size());
}

TEST(PackedRecords, DamagedBytesAreRefusedInALine) {
  const Parts parts = {some_records(100, 10), some_records(50, 10)};
  const std::string packed = pack_parts(parts);
  const std::vector<std::size_t> sizes = sizes_of(parts);
  const auto refuse = [&](const std::string& bytes, const std::vector<std::size_t>& of, const char* what) {
    test::expect_error([&] { unpack_parts(bytes, of, "here"); }, ErrorCode::kInvalidArgument, {"here", what, "allowed"});
  };
  for (std::size_t size = 0; size < packed.size(); ++size) refuse(packed.substr(0, size), sizes, "");
  refuse(packed + "x", sizes, "1 bytes behind its ranks");
  refuse(packed, {sizes[0], sizes[1] + 1}, "cannot be unpacked");
  refuse(packed, {sizes[0], sizes[1] - 1}, "cannot be unpacked");
  refuse(packed, {sizes[0]}, "cannot be unpacked");
  refuse(packed, {}, "cannot be unpacked");
  std::string flipped = packed;
  flipped[packed.size() / 2] ^= 1;
  refuse(flipped, sizes, "cannot be unpacked");
}

TEST(PackedRecords, WhatComesOutIsBoundedBeforehand) {
  const std::string bomb = pack_parts({std::vector<std::byte>(std::size_t{1} << 24)});
  EXPECT_LT(bomb.size(), 100'000U);
  const auto refuse = [&](const std::vector<std::size_t>& sizes, const char* what) {
    test::expect_error([&] { unpack_parts(bomb, sizes, "here"); }, ErrorCode::kInvalidArgument, {"here", what});
  };
  refuse({1000}, "cannot be unpacked into its 1000 bytes");
  refuse({kMaxUnpackedBytes + 1}, "more than 268435456 bytes");
  refuse({kMaxUnpackedBytes, SIZE_MAX}, "more than 268435456 bytes");
  refuse({kMaxUnpackedBytes}, "268435456 bytes packed into");
}

}  // namespace
}  // namespace ferry
