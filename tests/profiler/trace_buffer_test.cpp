#include "profiler/trace_buffer.h"

#include <gtest/gtest.h>

#include <thread>

namespace ferry {
namespace {

/// A record whose every word follows from its number, so that a torn one shows.
SpanRecord numbered(uint64_t n) {
  const auto low = static_cast<uint32_t>(n);
  return {.begin = n,
          .end = n * 3,
          .step = low,
          .zone = Zone::kRouter,
          .layer = static_cast<int16_t>(n % 100),
          .a = low ^ 7,
          .b = low + 1};
}

void expect_numbered(const SpanRecord& record) {
  const SpanRecord expected = numbered(record.begin);
  EXPECT_EQ(record.end, expected.end);
  EXPECT_EQ(record.step, expected.step);
  EXPECT_EQ(record.layer, expected.layer);
  EXPECT_EQ(record.a, expected.a);
  EXPECT_EQ(record.b, expected.b);
}

TEST(TraceBuffer, HandsOutWhatWasWrittenInOrder) {
  TraceBuffer ring(8);
  for (uint64_t n = 0; n < 5; ++n) ring.push(numbered(n));
  std::vector<SpanRecord> records;
  uint64_t num_lost = 0;
  EXPECT_EQ(ring.read(0, records, num_lost), 5U);
  EXPECT_EQ(num_lost, 0U);
  ASSERT_EQ(records.size(), 5U);
  for (uint64_t n = 0; n < 5; ++n) EXPECT_EQ(records[n].begin, n);
  EXPECT_EQ(ring.read(5, records, num_lost), 5U) << "nothing new";
  EXPECT_EQ(records.size(), 5U);
}

TEST(TraceBuffer, CountsExactlyWhatWasOverwritten) {
  TraceBuffer ring(8);
  for (uint64_t n = 0; n < 21; ++n) ring.push(numbered(n));
  std::vector<SpanRecord> records;
  uint64_t num_lost = 0;
  EXPECT_EQ(ring.read(2, records, num_lost), 21U);
  EXPECT_EQ(records.size() + num_lost, 19U) << "every record from number 2 is here or counted";
  EXPECT_EQ(records.back().begin, 20U);
  EXPECT_GE(records.size(), 7U) << "the oldest slot may be in use by the writer, no other";
  for (const SpanRecord& record : records) expect_numbered(record);
}

TEST(TraceBuffer, KnowsWhereAMomentBegins) {
  TraceBuffer ring(8);
  EXPECT_EQ(ring.first_since(0), 0U) << "nothing was written";
  for (uint64_t n = 0; n < 21; ++n) ring.push(numbered(n));  // ends are 3 n; the last 8 are there
  EXPECT_EQ(ring.first_since(0), 13U);
  EXPECT_EQ(ring.first_since(45), 15U);
  EXPECT_EQ(ring.first_since(46), 16U);
  EXPECT_EQ(ring.first_since(61), 21U) << "the next one to come";
}

TEST(TraceBuffer, KnowsTheLastEndUpToAMoment) {
  TraceBuffer ring(8);
  EXPECT_EQ(ring.last_end(1000), 0U) << "nothing was written";
  for (uint64_t n = 1; n < 21; ++n) ring.push(numbered(n));
  EXPECT_EQ(ring.last_end(1000), 60U);
  EXPECT_EQ(ring.last_end(60), 60U);
  EXPECT_EQ(ring.last_end(59), 57U);
  EXPECT_EQ(ring.last_end(38), 0U) << "what ended by then is overwritten";
}

TEST(TraceBuffer, ReaderBesideAWriterMissesNothingUncountedAndSeesNothingTorn) {
  constexpr uint64_t kWritten = 200'000;
  TraceBuffer ring(64);
  std::thread writer([&] {
    for (uint64_t n = 0; n < kWritten; ++n) ring.push(numbered(n));
  });
  std::vector<SpanRecord> records;
  uint64_t num_lost = 0, num_read = 0, next = 0, newest = 0;
  while (next < kWritten) {
    records.clear();
    next = ring.read(next, records, num_lost);
    for (const SpanRecord& record : records) {
      expect_numbered(record);
      if (num_read++ > 0) {
        ASSERT_GT(record.begin, newest);
      }
      newest = record.begin;
    }
  }
  writer.join();
  EXPECT_EQ(num_read + num_lost, kWritten);
}

}  // namespace
}  // namespace ferry
