#include "kernels/vulkan/device_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "profiler/span.h"
#include "tests/support/vulkan_device.h"

namespace ferry::vulkan {
namespace {

TEST(DeviceClock, TimestampsWrapAtTheBitsThatCount) {
  EXPECT_EQ(ticks_between(10, 25, 64), 15);
  EXPECT_EQ(ticks_between(25, 10, 64), -15);
  const uint64_t last = (uint64_t{1} << 36) - 1;
  EXPECT_EQ(ticks_between(last, 4, 36), 5);
  EXPECT_EQ(ticks_between(4, last, 36), -5);
  EXPECT_EQ(ticks_between(last, uint64_t{0xabc} << 36 | 4, 36), 5) << "what lies above the bits is noise";
}

// A device whose clock is 1000 behind and half as fast.
TEST(ClockBrackets, TheNarrowestBoundsOfAWhileCount) {
  ClockBrackets brackets(2, 48, 100'000);
  const auto device = [](uint64_t host) { return (host - 1000) / 2; };
  const auto error = [&](uint64_t host) {
    const ClockPair pair = brackets.pair();
    const double placed =
        static_cast<double>(pair.host) + 2 * static_cast<double>(ticks_between(pair.device, device(host), 48));
    return std::abs(placed - static_cast<double>(host));
  };
  brackets.add(2000, device(2400), device(3000), 4000);
  EXPECT_DOUBLE_EQ(brackets.pair().bound, 700);
  EXPECT_LE(error(5000), brackets.pair().bound);
  brackets.add(6000, device(6020), device(7000), 9000);
  brackets.add(9000, device(9900), device(9980), 10000);
  EXPECT_DOUBLE_EQ(brackets.pair().bound, 20);
  EXPECT_LE(error(9900), brackets.pair().bound);
  brackets.add(200'000, device(200'100), device(200'200), 200'300);
  EXPECT_DOUBLE_EQ(brackets.pair().bound, 100) << "what was known a while ago is not trusted any more";
  brackets.add(200'400, device(200'300), device(200'350), 200'500);
  EXPECT_LE(brackets.pair().bound, 100) << "bounds that contradict each other: the clocks have drifted";
}

/// A stream on a device, and a capture while it lives.
class Traced {
 public:
  explicit Traced(const PhysicalDevice& physical, TraceLevel level = TraceLevel::kOperators) : device_(physical) {
    recorder().register_thread("test");
    recorder().start({.level = level});
  }
  ~Traced() { recorder().discard(); }

  VulkanStream& stream() { return device_.stream; }
  test::VulkanDevice& device() { return device_; }
  Matrix rows(int64_t count) { return {device_.memory(), DType::kF32, count, 64}; }

  void finish() {
    device_.stream.wait(device_.stream.submit());
    finished_.push_back(now_ticks());
  }

  /// Each of the device's spans lies in the capture, and between two moments at which the host had seen that all was done.
  RankCapture stop() {
    RankCapture capture = recorder().stop();
    for (const SpanRecord& span : lane(capture).records) {
      EXPECT_LE(span.begin, span.end);
      EXPECT_GE(span.begin, capture.begin);
      EXPECT_LE(span.end, capture.end);
      EXPECT_EQ(std::ranges::lower_bound(finished_, span.begin), std::ranges::lower_bound(finished_, span.end));
    }
    return capture;
  }
  static const ThreadCapture& lane(const RankCapture& capture) {
    return *std::ranges::find_if(capture.threads, [](const ThreadCapture& thread) { return thread.is_device; });
  }

 private:
  test::VulkanDevice device_;
  std::vector<uint64_t> finished_;  // ticks
};

std::vector<Zone> zones_of(const ThreadCapture& lane) {
  std::vector<Zone> zones;
  for (const SpanRecord& span : lane.records) zones.push_back(span.zone);
  return zones;
}

TEST(DeviceTrace, EveryOperatorHasItsTimeOnTheDevicesLane) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  Traced traced(*physical);
  Matrix x = traced.rows(5), y = traced.rows(5);
  check_context() = {.rank = 0, .step = 7, .layer = 3};
  add(traced.stream(), {.a = x.view(), .b = x.view(), .out = y.view()});
  multiply(traced.stream(), {.zone = Zone::kConvGate, .a = y.view(), .b = x.view(), .out = x.view()});
  traced.finish();
  check_context() = {};
  const RankCapture capture = traced.stop();
  const ThreadCapture& lane = Traced::lane(capture);
  ASSERT_EQ(zones_of(lane), (std::vector<Zone>{Zone::kAdd, Zone::kConvGate}));
  EXPECT_EQ(lane.name, physical->info.name);
  EXPECT_EQ(capture.device.name, physical->info.name);
  EXPECT_EQ(capture.device.clock, physical->traits.has_calibrated_time ? "calibrated" : "bracketed");
  for (const SpanRecord& span : lane.records) {
    EXPECT_EQ(span.step, 7u);
    EXPECT_EQ(span.layer, 3);
    EXPECT_EQ(span.a, 5u) << "rows";
  }
  EXPECT_EQ(lane.records[0].end, lane.records[1].begin) << "a barrier is between them, and the queue is never empty";
  int64_t num_dispatches = 0, num_waits = 0;
  const auto own = std::ranges::find(capture.threads, "test", &ThreadCapture::name);
  ASSERT_NE(own, capture.threads.end());
  for (const SpanRecord& span : own->records) {
    if (span.zone == Zone::kDeviceDispatches) num_dispatches += span.a;
    if (span.zone == Zone::kWaitDevice) ++num_waits;
  }
  EXPECT_EQ(num_dispatches, 2);
  EXPECT_EQ(num_waits, 1);
}

TEST(DeviceTrace, OperatorsSideBySideShareTheirGroupsTime) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  Traced traced(*physical);
  Matrix x = traced.rows(5), y = traced.rows(5), z = traced.rows(5);
  add(traced.stream(), {.a = x.view(), .b = x.view(), .out = y.view()});
  add(traced.stream(), {.a = x.view(), .b = x.view(), .out = z.view()});
  add(traced.stream(), {.a = y.view(), .b = z.view(), .out = x.view()});
  traced.finish();
  const RankCapture capture = traced.stop();
  const std::vector<SpanRecord>& spans = Traced::lane(capture).records;
  ASSERT_EQ(spans.size(), 3u) << "three operators of one zone";
  EXPECT_EQ(spans[0].begin, spans[1].begin);
  EXPECT_EQ(spans[0].end, spans[1].end);
  EXPECT_EQ(spans[2].begin, spans[1].end);
}

TEST(DeviceTrace, AnOperatorThatNeedsSeveralSubmissionsIsOne) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  Traced traced(*physical);
  Matrix x = traced.rows(5);
  {
    const Span span(Zone::kAdd, 1);
    for (int i = 0; i < 300; ++i) traced.stream().clear({x.view().data, x.view().space}, 64);
  }
  traced.finish();
  const RankCapture capture = traced.stop();
  const std::vector<SpanRecord>& spans = Traced::lane(capture).records;
  ASSERT_GE(spans.size(), 2u);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].zone, Zone::kAdd);
    EXPECT_EQ((spans[i].micro_batch & kContinuedBit) != 0, i > 0);
    if (i > 0) {
      EXPECT_LE(spans[i - 1].end, spans[i].begin);
    }
  }
}

TEST(DeviceTrace, CopiesOfTheHostAndOutsideOfOperatorsAreNoOperators) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  Traced traced(*physical);
  Matrix x = traced.rows(5);
  std::vector<std::byte> bytes(256);
  {
    const Span span(Zone::kSample, 1);
    traced.stream().copy(Address<const std::byte>(x.view().data, x.view().space), Address<std::byte>(bytes.data()), 256);
    traced.stream().copy(Address<const std::byte>(x.view().data, x.view().space), Address<std::byte>(bytes.data()), 128);
  }
  traced.stream().clear({x.view().data, x.view().space}, 64);
  add(traced.stream(), {.a = x.view(), .b = x.view(), .out = x.view()});
  {
    const Span span(Zone::kAdd, 1);
    traced.stream().clear({x.view().data, x.view().space}, 64);
  }
  traced.finish();
  const RankCapture capture = traced.stop();
  const ThreadCapture& lane = Traced::lane(capture);
  ASSERT_EQ(zones_of(lane), (std::vector<Zone>{Zone::kDeviceCopy, Zone::kAdd, Zone::kAdd}));
  EXPECT_EQ(lane.records[0].a, 448u) << "bytes";
}

// The share of an operator that is given a thousand times the rows must show it.
TEST(DeviceTraceOnHost, WhatTakesLongerTakesMoreOfTheLane) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  const auto share_of_first = [&](int64_t num_rows) {
    Traced traced(*physical);
    Matrix x = traced.rows(num_rows), y = traced.rows(64);
    for (int i = 0; i < 20; ++i) {
      add(traced.stream(), {.a = x.view(), .b = x.view(), .out = x.view()});
      traced.finish();
      multiply(traced.stream(), {.zone = Zone::kConvGate, .a = y.view(), .b = y.view(), .out = y.view()});
      traced.finish();
    }
    const RankCapture capture = traced.stop();
    std::vector<uint64_t> first, second;
    for (const SpanRecord& span : Traced::lane(capture).records)
      (span.zone == Zone::kAdd ? first : second).push_back(span.end - span.begin);
    EXPECT_EQ(first.size(), 20u);
    EXPECT_EQ(second.size(), 20u);
    std::ranges::sort(first);
    std::ranges::sort(second);
    return static_cast<double>(first[10]) / static_cast<double>(first[10] + second[10]);
  };
  EXPECT_GT(share_of_first(64'000), share_of_first(64));
}

TEST(DeviceTrace, ADeviceWhoseClockCannotBeReadIsBracketed) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  PhysicalDevice lowered = *physical;
  lowered.traits.has_calibrated_time = false;
  Traced traced(lowered);
  Matrix x = traced.rows(5);
  for (int i = 0; i < 3; ++i) {
    add(traced.stream(), {.a = x.view(), .b = x.view(), .out = x.view()});
    traced.finish();
  }
  const RankCapture capture = traced.stop();
  EXPECT_EQ(capture.device.clock, "bracketed");
  EXPECT_GT(capture.device.clock_bound_ns, 0);
  EXPECT_EQ(Traced::lane(capture).records.size(), 3u);
}

PFN_vkGetCalibratedTimestampsEXT read_clocks = nullptr;  // the driver's
std::atomic<int64_t> clock_error{0};                     // ticks of the device, of every reading
std::atomic<int> num_readings{0};

VKAPI_ATTR VkResult VKAPI_CALL read_wrong_clocks(VkDevice device, uint32_t count, const VkCalibratedTimestampInfoEXT* infos,
                                                 uint64_t* times, uint64_t* deviation) {
  ++num_readings;
  const VkResult result = read_clocks(device, count, infos, times, deviation);
  times[0] += static_cast<uint64_t>(clock_error.load());
  return result;
}

// A reading that is wrong by seconds must not take away the time of what ran: spans of no length would say that it was idle.
TEST(DeviceTrace, AWrongReadingOfTheClockIsNotBelieved) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  if (!physical->traits.has_calibrated_time) GTEST_SKIP() << "the device's clock cannot be read";
  for (const int64_t error : {-1'000'000'000, 1'000'000'000}) {
    Traced traced(*physical);
    read_clocks = std::exchange(traced.device().backend.device().vk().GetCalibratedTimestamps, &read_wrong_clocks);
    clock_error = error;
    Matrix x = traced.rows(64'000);
    for (int i = 0; i < 3; ++i) {
      add(traced.stream(), {.a = x.view(), .b = x.view(), .out = x.view()});
      traced.finish();
    }
    const RankCapture capture = traced.stop();
    ASSERT_EQ(Traced::lane(capture).records.size(), 3u);
    for (const SpanRecord& span : Traced::lane(capture).records) EXPECT_LT(span.begin, span.end);
    EXPECT_GT(capture.device.clock_bound_ns, 0);
  }
}

double ns_of_device_tick = 1;
std::atomic<int64_t> skipped_ns{0};  // that the clocks of device and host are ahead of what they are

VKAPI_ATTR VkResult VKAPI_CALL read_clocks_ahead(VkDevice device, uint32_t count, const VkCalibratedTimestampInfoEXT* infos,
                                                 uint64_t* times, uint64_t* deviation) {
  ++num_readings;
  const VkResult result = read_clocks(device, count, infos, times, deviation);
  times[0] += static_cast<uint64_t>(static_cast<double>(skipped_ns) / ns_of_device_tick);
  times[1] += static_cast<uint64_t>(skipped_ns.load());
  return result;
}

/// Follows a device's clock, on a machine whose clocks a test moves on.
class FollowedClock {
 public:
  explicit FollowedClock(const PhysicalDevice& physical)
      : device_(physical), ns_per_host_tick_(recorder().ticks().ns_per_tick) {
    read_clocks = std::exchange(device().vk().GetCalibratedTimestamps, &read_clocks_ahead);
    ns_of_device_tick = physical.traits.timestamp_ns;
    skipped_ns = 0;
    clock_.emplace(device());
  }

  void skip(int64_t ns) { skipped_ns += ns; }
  /// How often the clock is read for so many submissions that are seen to have run at one moment.
  int readings_of(int num_submissions) {
    struct Submission {
      uint64_t submitted, moment;
    };
    std::vector<Submission> submissions;
    for (int i = 0; i < num_submissions; ++i) submissions.push_back({host_now(), device_now()});
    const uint64_t seen = host_now();
    num_readings = 0;
    for (const Submission& s : submissions) clock_->follow(s.submitted, s.moment, s.moment, seen);
    return num_readings;
  }
  DeviceClock& clock() { return *clock_; }
  uint64_t device_now() {
    const std::array<VkCalibratedTimestampInfoEXT, 1> info = {
        {{.sType = VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT, .timeDomain = VK_TIME_DOMAIN_DEVICE_EXT}}};
    std::array<uint64_t, 2> times{};
    uint64_t deviation = 0;
    EXPECT_EQ(device().vk().GetCalibratedTimestamps(device().handle(), 1, info.data(), times.data(), &deviation), VK_SUCCESS);
    return times[0];
  }

 private:
  Device& device() { return device_.backend.device(); }
  uint64_t host_now() const { return now_ticks() + static_cast<uint64_t>(static_cast<double>(skipped_ns) / ns_per_host_tick_); }

  test::VulkanDevice device_;
  const double ns_per_host_tick_;
  std::optional<DeviceClock> clock_;
};

// Two readings a moment apart would tell the clock's rate by their errors.
TEST(DeviceClock, OneReadingServesAllSubmissionsThatAreSeenAtOnce) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  if (!physical->traits.has_calibrated_time) GTEST_SKIP() << "the device's clock cannot be read";
  constexpr int64_t kLongAgo = 2'000'000'000;  // ns
  FollowedClock followed(*physical);
  followed.skip(kLongAgo);
  const int once = followed.readings_of(1);
  EXPECT_GT(once, 0);
  followed.skip(kLongAgo);
  EXPECT_EQ(followed.readings_of(3), once);
}

TEST(DeviceClock, WhatTakesLongerOnTheDeviceTakesLongerInTheTrace) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  if (!physical->traits.has_calibrated_time) GTEST_SKIP() << "the device's clock cannot be read";
  FollowedClock followed(*physical);
  const uint64_t moment = followed.device_now();
  const double host_per_device = physical->traits.timestamp_ns / recorder().ticks().ns_per_tick;
  for (const uint64_t device_ticks : {uint64_t{1000}, uint64_t{1'000'000}}) {
    const uint64_t host_ticks = followed.clock().place(moment + device_ticks) - followed.clock().place(moment);
    EXPECT_NEAR(static_cast<double>(host_ticks), static_cast<double>(device_ticks) * host_per_device,
                2 + 1e-3 * static_cast<double>(host_ticks));
  }
}

TEST(DeviceTrace, ADeviceWithoutTimestampsSaysSo) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  PhysicalDevice lowered = *physical;
  lowered.traits.timestamp_ns = 0;
  lowered.traits.timestamp_bits = 0;
  Traced traced(lowered);
  Matrix x = traced.rows(5);
  add(traced.stream(), {.a = x.view(), .b = x.view(), .out = x.view()});
  traced.finish();
  const RankCapture capture = traced.stop();
  EXPECT_EQ(capture.device.clock.find("none: "), 0u) << capture.device.clock;
  EXPECT_TRUE(Traced::lane(capture).records.empty());
}

TEST(DeviceTrace, ResultsThatAreNotThereEndItAndNothingElse) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  Traced traced(*physical);
  traced.device().backend.device().vk().GetQueryPoolResults = [](VkDevice, VkQueryPool, uint32_t, uint32_t, size_t, void*,
                                                                 VkDeviceSize, VkQueryResultFlags) { return VK_NOT_READY; };
  Matrix x = traced.rows(5);
  add(traced.stream(), {.a = x.view(), .b = x.view(), .out = x.view()});
  traced.finish();
  add(traced.stream(), {.a = x.view(), .b = x.view(), .out = x.view()});
  traced.finish();
  const RankCapture capture = traced.stop();
  EXPECT_EQ(capture.device.clock.find("none: "), 0u) << capture.device.clock;
  EXPECT_TRUE(Traced::lane(capture).records.empty());
}

PFN_vkCmdWriteTimestamp2 write_timestamp = nullptr;  // the driver's
std::atomic<int> num_timestamps{0};

VKAPI_ATTR void VKAPI_CALL count_timestamp(VkCommandBuffer commands, VkPipelineStageFlags2 stage, VkQueryPool pool,
                                           uint32_t query) {
  ++num_timestamps;
  write_timestamp(commands, stage, pool, query);
}

TEST(DeviceTrace, NothingIsMarkedWhileOperatorsAreNotRecorded) {
  FERRY_NEED_VULKAN_DEVICE(physical);
  Traced traced(*physical, TraceLevel::kSteps);
  write_timestamp = std::exchange(traced.device().backend.device().vk().CmdWriteTimestamp2, &count_timestamp);
  num_timestamps = 0;
  Matrix x = traced.rows(5);
  add(traced.stream(), {.a = x.view(), .b = x.view(), .out = x.view()});
  traced.finish();
  EXPECT_EQ(num_timestamps, 0);
  const RankCapture capture = traced.stop();
  EXPECT_TRUE(Traced::lane(capture).records.empty());
  recorder().start({.level = TraceLevel::kOperators});
  add(traced.stream(), {.a = x.view(), .b = x.view(), .out = x.view()});
  traced.finish();
  EXPECT_EQ(num_timestamps, 2) << "one operator lies between two moments";
}

}  // namespace
}  // namespace ferry::vulkan
