#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "profiler/memory/memory_recorder.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/error.h"
#include "runtime/base/lazy_pages.h"
#include "runtime/base/memory_use.h"
#include "runtime/base/sanitizers.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

UsedMemory used(MemoryUse use) { return measure_memory_uses()[static_cast<std::size_t>(use)]; }

TEST(MemoryUses, PagesCountForTheirUseOnceTheyAreTouched) {
  const UsedMemory before = used(MemoryUse::kKvCache);
  const int64_t untouched_before = untouched_bytes();
  {
    const MemoryUseScope use(MemoryUse::kKvCache);
    AlignedBuffer buffer(4 * kHugePage);
    EXPECT_EQ(used(MemoryUse::kKvCache).reserved - before.reserved, int64_t{4 * kHugePage});
    EXPECT_EQ(used(MemoryUse::kKvCache).resident, before.resident);
    EXPECT_EQ(untouched_bytes() - untouched_before, int64_t{4 * kHugePage});
    std::memset(buffer.data(), 1, kHugePage);
    EXPECT_EQ(used(MemoryUse::kKvCache).resident - before.resident, int64_t{kHugePage});
    EXPECT_EQ(untouched_bytes() - untouched_before, int64_t{3 * kHugePage});
    const AlignedBuffer moved = std::move(buffer);
    EXPECT_EQ(used(MemoryUse::kKvCache).reserved - before.reserved, int64_t{4 * kHugePage});
  }
  EXPECT_EQ(used(MemoryUse::kKvCache).reserved, before.reserved);
  EXPECT_EQ(used(MemoryUse::kKvCache).resident, before.resident);
}

TEST(MemoryUses, PagesThatWereDroppedCountUntilTheyAreTouchedAgain) {
  constexpr std::size_t kBytes = 24 * kHugePage;  // of several blocks, the last one a part
  const MemoryUseScope use(MemoryUse::kWeights);
  const int64_t before = used(MemoryUse::kWeights).resident;
  const auto resident = [before] { return used(MemoryUse::kWeights).resident - before; };
  AlignedBuffer buffer(kBytes);
  std::memset(buffer.data(), 1, kBytes);
  EXPECT_EQ(resident(), int64_t{kBytes});
  constexpr std::size_t kFirst = 7 * kHugePage, kDropped = 3 * kHugePage;  // the end of one block and the next one's begin
  ASSERT_EQ(madvise(buffer.data() + kFirst, kDropped, MADV_DONTNEED), 0);
  note_dropped(buffer.data() + kFirst, kDropped);
  EXPECT_EQ(resident(), int64_t{kBytes - kDropped});
  std::memset(buffer.data() + kFirst, 1, kHugePage);
  EXPECT_EQ(resident(), int64_t{kBytes - kDropped + kHugePage});
  std::memset(buffer.data() + kFirst, 1, kDropped);
  EXPECT_EQ(resident(), int64_t{kBytes});
}

TEST(MemoryUses, SmallMemoryCountsForTheScopeThatItWasMadeIn) {
  const UsedMemory before = used(MemoryUse::kSnapshots), others = used(MemoryUse::kBuffers);
  AlignedBuffer kept;
  {
    const MemoryUseScope outer(MemoryUse::kSnapshots);
    {
      const MemoryUseScope inner(MemoryUse::kExchange);
      EXPECT_EQ(current_memory_use(), MemoryUse::kExchange);
    }
    kept = AlignedBuffer(1000);
  }
  EXPECT_EQ(current_memory_use(), MemoryUse::kBuffers);
  EXPECT_EQ(used(MemoryUse::kSnapshots).small - before.small, 1000);
  kept = AlignedBuffer(500);
  EXPECT_EQ(used(MemoryUse::kSnapshots).small, before.small) << "given back to the use that it was made for";
  EXPECT_EQ(used(MemoryUse::kBuffers).small - others.small, 500);
}

TEST(MemoryUses, PagesThatAreNotPromisedAreNotAmongTheUntouched) {
  const int64_t untouched_before = untouched_bytes();
  std::byte* data = map_lazy_pages(kHugePage);
  forget_pages(data);
  note_pages(data, kHugePage, MemoryUse::kWeights, false);
  EXPECT_EQ(untouched_bytes(), untouched_before);
  EXPECT_GE(used(MemoryUse::kWeights).reserved, int64_t{kHugePage});
  unmap_lazy_pages(data, kHugePage);
  EXPECT_EQ(untouched_bytes(), untouched_before);
}

TEST(MemorySamples, SayWhatTheSystemSays) {
  const test::TempFolder folder;
  const std::string status = folder.path() / "status", none = folder.path() / "none";
  std::ofstream(status) << "Name:\tferry\nVmRSS:\t    600 kB\nRssAnon:\t     300 kB\nRssFile:\t200 kB\nRssShmem:\t  100 kB\n";
  MemoryAccount account;
  account.set(MemoryKind::kUsedKvCache, 77);
  const MemorySample sample = sample_memory(account, {.resident_bytes = 11, .mapped_bytes = 12}, 5, status.c_str());
  EXPECT_EQ(sample.ticks, 5U);
  EXPECT_EQ(sample[MemoryKind::kAnonymous], 300 * 1024);
  EXPECT_EQ(sample[MemoryKind::kFiles], 200 * 1024);
  EXPECT_EQ(sample[MemoryKind::kShared], 100 * 1024);
  EXPECT_EQ(sample.total(MemoryRole::kResident), 600 * 1024);
  EXPECT_EQ(sample[MemoryKind::kUsedKvCache], 77);
  EXPECT_EQ(sample[MemoryKind::kTrace], 11);
  const MemorySample without = sample_memory(MemoryAccount{}, {}, 5, none.c_str());
  EXPECT_EQ(without[MemoryKind::kAnonymous], kNotKnown);
  EXPECT_EQ(without[MemoryKind::kUsedKvCache], kNotKnown);
  std::ofstream(status) << "RssAnon:\t-5 kB\nRssFile: x kB\nRssShmem:\t99999999999999999999 kB\n";
  const MemorySample odd = sample_memory(account, {}, 5, status.c_str());
  EXPECT_EQ(odd.total(MemoryRole::kResident), 0) << "nothing of it is a size";
}

TEST(MemorySamples, KnowOfADeviceWhatTheProgramCounts) {
  EXPECT_EQ(sample_memory(MemoryAccount{}, {}, 1)[MemoryKind::kDeviceWeights], kNotKnown) << "nobody asked a device for memory";
  count_device_bytes(MemoryUse::kWeights, 700);
  count_device_bytes(MemoryUse::kBuffers, 20);
  count_device_bytes(MemoryUse::kExchange, 3);
  const MemorySample sample = sample_memory(MemoryAccount{}, {}, 1);
  EXPECT_EQ(sample[MemoryKind::kDeviceWeights], 700);
  EXPECT_EQ(sample[MemoryKind::kDeviceKvCache], 0);
  EXPECT_EQ(sample[MemoryKind::kDeviceBuffers], 23);
  EXPECT_EQ(sample.total(MemoryRole::kDevice), 723);
  count_device_bytes(MemoryUse::kWeights, -700);
  count_device_bytes(MemoryUse::kBuffers, -20);
  count_device_bytes(MemoryUse::kExchange, -3);
}

TEST(MemorySamples, AccountForThisProcess) {
  AlignedBuffer buffer(16 * kHugePage);
  std::memset(buffer.data(), 1, buffer.size());
  const MemorySample sample = sample_memory(MemoryAccount{}, {}, 1);
  EXPECT_GE(sample[MemoryKind::kBuffers], int64_t{16 * kHugePage});
  EXPECT_GE(sample[MemoryKind::kAnonymous], int64_t{16 * kHugePage});
#if !defined(FERRY_ADDRESS_SANITIZER)
  EXPECT_LT(sample.total(MemoryRole::kHeld), sample[MemoryKind::kAnonymous] + (4 << 20)) << "nothing counts twice";
#endif
}

TEST(MemoryRecorderTest, TakesSamplesUntilThereIsNoRoom) {
  MemoryRecorder recorder;
  recorder.begin(2);
  EXPECT_TRUE(recorder.is_due(std::chrono::steady_clock::now())) << "at once";
  const MemoryAccount account;
  const auto before = std::chrono::steady_clock::now();
  for (uint64_t now = 1; now <= 5; ++now) recorder.sample(account, {}, now);
  EXPECT_FALSE(recorder.is_due(before + MemoryRecorder::kPeriod - std::chrono::nanoseconds(1)))
      << "a period is over at the earliest";
  EXPECT_TRUE(recorder.is_due(std::chrono::steady_clock::now() + std::chrono::hours(1)));
  const MemoryCapture capture = recorder.end();
  ASSERT_EQ(capture.samples.size(), 2U);
  EXPECT_EQ(capture.samples[1].ticks, 2U);
  EXPECT_EQ(capture.num_lost, 3U);
}

MemoryCapture some_memory() {
  MemoryCapture memory{.num_lost = 4};
  for (uint64_t t = 0; t < 3; ++t) {
    MemorySample sample{.ticks = 100 + t};
    sample.bytes.fill(kNotKnown);
    sample[MemoryKind::kWeights] = static_cast<int64_t>(1000 * t);
    sample[MemoryKind::kAnonymous] = 5000;
    memory.samples.push_back(sample);
  }
  memory.samples[1][MemoryKind::kShared] = 0;
  return memory;
}

TEST(MemorySection, ComesBackAsItWas) {
  EXPECT_TRUE(encode_memory({}).empty());
  const std::vector<std::byte> bytes = encode_memory(some_memory());
  EXPECT_EQ(decode_memory(bytes, "here"), some_memory());
  constexpr std::size_t kRow = 4 * sizeof(uint64_t);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::size_t missing = bytes.size() - size;
    if (missing % kRow == 0 && missing <= 3 * kRow) continue;  // whole rows
    EXPECT_THROW(decode_memory(std::span(bytes).first(size), "here"), Error) << size;
  }
  MemoryCapture negative = some_memory();
  negative.samples[2][MemoryKind::kWeights] = -2;
  test::expect_error([&] { decode_memory(encode_memory(negative), "here"); }, ErrorCode::kInvalidArgument,
                     {"here: a sample of -2 bytes"});
}

}  // namespace
}  // namespace ferry
