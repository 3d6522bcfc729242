#include <gtest/gtest.h>

#include <new>
#include <thread>

#include "profiler/recorder.h"
#include "profiler/span.h"
#include "tests/support/allocation_count.h"

namespace ferry {
namespace {

constexpr auto kSpanBytes = static_cast<int64_t>(sizeof(SpanRecord));
constexpr int64_t kRingBytes = int64_t{Recorder::kRingRecords} * kSpanBytes;
constexpr int64_t kChunkBytes = int64_t{Recorder::kChunkRecords} * kSpanBytes;

void record_spans(int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const Span span(Zone::kStep, i);
  }
}

class RecorderMemoryTest : public testing::Test {
 protected:
  void SetUp() override { recorder().register_thread("test"); }
  void TearDown() override { recorder().discard(); }
};

TEST_F(RecorderMemoryTest, ACaptureTakesWhatItsSpansNeed) {
  constexpr int64_t kRounds = 8;
  constexpr int64_t kSpans = 8193;                  // a vector that doubles would have room for nearly as many again
  recorder().start({.level = TraceLevel::kSteps});  // counters are not opened meanwhile
  const int64_t before = test::num_live_bytes();
  for (int64_t i = 0; i < kRounds; ++i) {
    record_spans(kSpans);
    std::thread([] { recorder().register_thread("short"); }).join();  // as it ends, all rings are emptied; its own stays
  }
  const int64_t taken = test::num_live_bytes() - before - kRounds * kRingBytes;
  EXPECT_GE(taken, kRounds * kSpans * kSpanBytes);
  EXPECT_LE(taken, kRounds * kSpans * kSpanBytes + 2 * kChunkBytes);
}

TEST_F(RecorderMemoryTest, SpansThatHaveNoMemoryAreCounted) {
  constexpr int64_t kSpans = 5000;
  recorder().start({});
  const test::LittleMemory little(kChunkBytes - 1, test::Whose::kAllThreads);
  record_spans(kSpans);
  const RankCapture capture = recorder().stop();
  for (const ThreadCapture& thread : capture.threads) {
    EXPECT_TRUE(thread.records.empty());
    EXPECT_EQ(thread.num_lost, thread.name == "test" ? kSpans : 0);
  }
}

TEST_F(RecorderMemoryTest, ACaptureThatHasNoMemoryIsGivenUp) {
  constexpr int64_t kSpans = 5000;
  recorder().start({});
  record_spans(kSpans);
  {
    const test::LittleMemory little(2 * kChunkBytes);  // for chunks, but not for all spans in a row
    EXPECT_THROW(recorder().stop(), std::bad_alloc);
  }
  EXPECT_FALSE(recorder().is_capturing());
  recorder().start({});
  record_spans(3);
  std::size_t num_records = 0;
  for (const ThreadCapture& thread : recorder().stop().threads) num_records += thread.records.size();
  EXPECT_EQ(num_records, 3U);
}

}  // namespace
}  // namespace ferry
