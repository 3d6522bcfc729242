#include "profiler/capture.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "profiler/capture_merge.h"
#include "profiler/report/timeline/timeline.h"
#include "runtime/base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/made_capture.h"
#include "tests/support/no_file_room.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

class CaptureFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "ferry_capture_test_").string() + "XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

void expect_equal(const RankCapture& x, const RankCapture& y) {
  EXPECT_EQ(encode_rank_capture(x), encode_rank_capture(y));
  ASSERT_EQ(x.threads.size(), y.threads.size());
  for (std::size_t t = 0; t < x.threads.size(); ++t) {
    ASSERT_EQ(x.threads[t].records.size(), y.threads[t].records.size());
    EXPECT_EQ(
        std::memcmp(x.threads[t].records.data(), y.threads[t].records.data(), x.threads[t].records.size() * sizeof(SpanRecord)),
        0);
  }
}

TEST_F(CaptureFiles, ComeBackAsTheyWere) {
  const Capture capture = make_made_capture({.clock_offset_ns = -5e6, .clock_drift = 3e-5, .clock_bound_ns = 40});
  write_capture(folder_ / "new" / "deep", capture);
  const Capture again = read_capture(folder_ / "new" / "deep");
  ASSERT_EQ(again.ranks.size(), capture.ranks.size());
  for (std::size_t r = 0; r < capture.ranks.size(); ++r) expect_equal(capture.ranks[r], again.ranks[r]);
  EXPECT_EQ(again.info.expert_tokens, capture.info.expert_tokens);
  EXPECT_EQ(again.info.model.layer_types, capture.info.model.layer_types);
  EXPECT_FALSE(again.info.model.operators.empty());
  EXPECT_EQ(again.info.model.operators, capture.info.model.operators);
  EXPECT_EQ(again.info.transport, capture.info.transport);
}

TEST_F(CaptureFiles, DevicesComeBackAsTheyWere) {
  const RankCapture rank = test::device_capture().capture.ranks[0];
  const RankCapture again = decode_rank_capture(encode_rank_capture(rank), "rank-0.spans");
  expect_equal(rank, again);
  EXPECT_FALSE(again.threads[0].is_device);
  EXPECT_TRUE(again.threads[1].is_device);
  EXPECT_EQ(again.device.name, "GPU");
  EXPECT_EQ(again.device.driver, "driver 1");
  EXPECT_EQ(again.device.clock, "calibrated");
  EXPECT_EQ(again.device.clock_bound_ns, 50);
  RankCapture on_thread = rank;
  on_thread.threads[0].records.push_back(rank.threads[1].records[3]);
  EXPECT_THROW(decode_rank_capture(encode_rank_capture(on_thread), "rank-0.spans"), Error) << "threads continue nothing";
}

TEST_F(CaptureFiles, RefuseDamageWithALineThatNamesTheFile) {
  const Capture capture = make_made_capture();
  const std::vector<std::byte> good = encode_rank_capture(capture.ranks[1]);
  const auto refusal = [](std::vector<std::byte> bytes) -> std::string {
    try {
      decode_rank_capture(bytes, "rank-1.spans");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "nothing";
  };
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{23}, std::size_t{60}, good.size() - 1}) {
    const std::string said = refusal({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)});
    EXPECT_NE(said.find("rank-1.spans"), std::string::npos) << size << ": " << said;
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_NE(refusal(longer).find("behind its records"), std::string::npos);
  std::vector<std::byte> flipped = good;
  flipped[0] = std::byte{'f'};
  EXPECT_NE(refusal(flipped).find("does not begin"), std::string::npos);
  std::vector<std::byte> unknown_zone = good;
  unknown_zone[good.size() - sizeof(SpanRecord) + offsetof(SpanRecord, zone)] = std::byte{0xff};
  EXPECT_NE(refusal(unknown_zone).find("zone 255"), std::string::npos);
  std::vector<std::byte> third_part = good;
  third_part[good.size() - sizeof(SpanRecord) + offsetof(SpanRecord, micro_batch)] = std::byte{128};
  EXPECT_NE(refusal(third_part).find("micro-batch 128"), std::string::npos);
  for (std::size_t at = 8; at < 400; at += 3) {  // whatever is wrong, it is an Error or a capture
    std::vector<std::byte> noisy = good;
    noisy[at] ^= std::byte{0x5a};
    try {
      decode_rank_capture(noisy, "noisy");
    } catch (const Error&) {
    }
  }
}

TEST_F(CaptureFiles, RefuseNumbersThatNoRunHas) {
  const Capture good = make_made_capture();
  const auto refuse = [&](auto&& spoil, const std::string& said) {
    RankCapture rank = good.ranks[1];
    spoil(rank);
    test::expect_error([&] { decode_rank_capture(encode_rank_capture(rank), "rank-1.spans"); }, ErrorCode::kInvalidArgument,
                       {"rank-1.spans: " + said + "; allowed: a capture file that Ferry wrote"});
  };
  refuse([](RankCapture& r) { r.peak_rss_bytes = -5; }, "peak_rss_bytes is -5");
  const auto add_step = [](RankCapture& r, uint32_t rows) {
    r.threads[0].records.push_back({.begin = r.begin, .end = r.begin, .zone = Zone::kStep, .a = rows});
  };
  refuse([&](RankCapture& r) { add_step(r, uint32_t{1} << 31); }, "a step's rows is 2147483648");
  refuse([&](RankCapture& r) { add_step(r, (1 << 20) + 1); }, "a step's rows is 1048577");
  RankCapture largest = good.ranks[1];
  add_step(largest, 1 << 20);
  EXPECT_NO_THROW(decode_rank_capture(encode_rank_capture(largest), "rank-1.spans"));
  refuse([](RankCapture& r) { r.num_preemptions = -1; }, "num_preemptions is -1");
  refuse([](RankCapture& r) { r.ticks.ns_per_tick = 0; }, "ns_per_tick is 0");
  refuse([](RankCapture& r) { r.ticks.ns_per_tick = 1e300; }, "ns_per_tick is 1e+300");
  refuse([](RankCapture& r) { r.span_cost_ns = -2; }, "span_cost_ns is -2");
  refuse([](RankCapture& r) { r.alignment.drift = 3; }, "drift is 3");
  refuse([](RankCapture& r) { r.alignment.offset_ns = 1e30; }, "offset_ns is 1e+30");
  refuse([](RankCapture& r) { r.threads[0].num_lost = static_cast<uint64_t>(-3); }, "a thread's num_lost is -3");
  refuse([](RankCapture& r) { std::swap(r.begin, r.end); },
         "end is " + std::to_string(good.ranks[1].begin) + " ticks, before its begin");
  refuse([](RankCapture& r) { r.threads[0].records[0].begin = 0, r.threads[0].records[0].end = uint64_t{1} << 62; },
         "a record is at 4611686018427387904 ticks");
  CounterReading reading{.begin = good.ranks[1].begin, .end = good.ranks[1].end};
  reading.values.fill(kNotCounted);
  refuse(
      [&](RankCapture& r) {
        r.counters.readings = {reading};
        r.counters.readings[0].values[0] = static_cast<uint64_t>(-7);
      },
      std::string("section counters: ") + kCounters[0].name + " is -7");
  refuse(
      [&](RankCapture& r) {
        r.counters.readings = {reading};
        r.counters.readings[0].values[0] = 1;
        r.counters.readings[0].end = uint64_t{1} << 63;
      },
      "section counters: a reading is at 9223372036854775808 ticks");
  refuse([](RankCapture& r) { r.memory.samples = {{.ticks = uint64_t{1} << 63, .bytes = {}}}; },
         "section memory: a sample is at 9223372036854775808 ticks");
}

TEST_F(CaptureFiles, RefuseNumbersThatNoRunIsToldOf) {
  const auto refuse = [](auto&& spoil, const std::string& said) {
    CaptureInfo info = make_made_capture().info;
    spoil(info);
    test::expect_error([&] { decode_capture_info(encode_capture_info(info), "capture.json"); }, ErrorCode::kInvalidArgument,
                       {"capture.json: " + said + "; allowed: a capture file that Ferry wrote"});
  };
  refuse([](CaptureInfo& i) { i.level = static_cast<TraceLevel>(9); }, "level is 9");
  refuse([](CaptureInfo& i) { i.read_bytes_per_s = -1; }, "read_bytes_per_s is -1");
  refuse([](CaptureInfo& i) { i.flops_per_s = 1e200; }, "flops_per_s is 1e+200");
  refuse([](CaptureInfo& i) { i.start_epoch_ns = -1; }, "start_epoch_ns is -1");
  refuse([](CaptureInfo& i) { i.expert_tokens.at(0).at(0) = -4; }, "expert_tokens is -4");
  refuse([](CaptureInfo& i) { i.num_kv_blocks = -4; }, "num_kv_blocks is -4");
  refuse([](CaptureInfo& i) { i.model.operators.at(0).flop.per_row = 1e90; }, "an operator's amount is 1e+90");
}

/// A device's spans of which the i-th begins and ends `distance` behind the one before, `length` long.
RankCapture stairs(uint64_t num_spans, uint64_t distance, uint64_t length) {
  test::SmallCapture small(1, 1'000'000);
  for (uint64_t i = 0; i < num_spans; ++i) small.ran(0, Zone::kAdd, i * distance, i * distance + length, 1, {0, 0});
  return small.capture.ranks[0];
}

TEST_F(CaptureFiles, RefuseSpansOfADeviceThatRunOnBesideTooManyOthers) {
  const auto read = [](const RankCapture& rank) { return decode_rank_capture(encode_rank_capture(rank), "rank-0.spans"); };
  EXPECT_NO_THROW(read(stairs(5000, 0, 100))) << "side by side, from the same moment to the same moment";
  EXPECT_NO_THROW(read(stairs(5000, 100, 100))) << "one behind the other";
  EXPECT_NO_THROW(read(stairs(5000, 10, 10 * (kMaxRunningOn + 1)))) << "as many as are allowed run on while one begins or ends";
  test::expect_error([&] { read(stairs(5000, 10, 10 * (kMaxRunningOn + 2))); }, ErrorCode::kInvalidArgument,
                     {"rank-0.spans: 17 spans of a device that run on while others begin or end; 16 do at most"});
  // Moments count at which something ran that was too short for the clock.
  RankCapture instants = stairs(kMaxRunningOn + 1, 0, 100);
  EXPECT_NO_THROW(read(instants));
  instants.threads.back().records.push_back({.begin = 50, .end = 50, .zone = Zone::kAdd});
  EXPECT_THROW(read(instants), Error);
}

TEST_F(CaptureFiles, TellWhoHeldExpertsAndWhyWorkersChanged) {
  Capture capture = make_made_capture({.world_size = 4});
  CaptureInfo& info = capture.info;
  write_capture(folder_ / "none", capture);
  EXPECT_TRUE(read_capture(folder_ / "none").info.placement.ranks.empty()) << "as in captures of older versions";
  info.placement = {.epoch = 7, .ranks = {1, 2, 3}, .holders = {std::vector<uint64_t>(info.expert_rank.size(), 0b101)}};
  info.placement.holders[0][2] = 0b010;
  info.worker_changes = {{.ticks = 9, .rank = 2, .from = "healthy", .to = "masked", .reason = "its \"link\"\nbroke"}};
  write_capture(folder_ / "some", capture);
  const CaptureInfo again = read_capture(folder_ / "some").info;
  EXPECT_EQ(again.placement.epoch, 7U);
  EXPECT_EQ(again.placement.ranks_of(0, 0), (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(again.placement.ranks_of(0, 2), (std::vector<int32_t>{2}));
  EXPECT_EQ(again.placement.ranks_of(1, 0), (std::vector<int32_t>{})) << "a layer without experts";
  ASSERT_EQ(again.worker_changes.size(), 1U);
  EXPECT_EQ(again.worker_changes[0].ticks, 9U);
  EXPECT_EQ(again.worker_changes[0].rank, 2);
  EXPECT_EQ(again.worker_changes[0].to, "masked");
  EXPECT_EQ(again.worker_changes[0].reason, "its \"link\"\nbroke");
  EXPECT_TRUE(again.settings.empty());
  EXPECT_TRUE(read_capture(folder_ / "some").ranks[0].cores.empty());
  info.settings = {{"--prefill-chunk", "64"}, {"--speculate", "ngram:3"}};
  capture.ranks[0].cores = "0-3,8";
  write_capture(folder_ / "set", capture);
  EXPECT_EQ(read_capture(folder_ / "set").info.settings, info.settings);
  EXPECT_EQ(read_capture(folder_ / "set").ranks[0].cores, "0-3,8");
}

TEST_F(CaptureFiles, SayWhyTheirStepsWereKept) {
  Capture capture = make_made_capture();
  write_capture(folder_ / "whole", capture);
  EXPECT_TRUE(read_capture(folder_ / "whole").info.selection.empty());
  capture.info.selection = {{"long", 2}, {"sample", 7}};
  write_capture(folder_ / "kept", capture);
  EXPECT_EQ(read_capture(folder_ / "kept").info.selection, capture.info.selection);
  capture.info.selection = {{"long", 0}};
  write_capture(folder_ / "none", capture);
  test::expect_error([&] { read_capture(folder_ / "none"); }, ErrorCode::kInvalidArgument,
                     {"capture.json", "0 steps that were kept for", "long"});
}

TEST_F(CaptureFiles, RefuseHoldersThatCannotBe) {
  const Capture good = make_made_capture({.world_size = 3});
  const std::size_t num_experts = good.info.expert_rank.size();
  const auto refuse = [&](const HolderFacts& placement, const std::string& what) {
    Capture bad = good;
    bad.info.placement = placement;
    std::filesystem::remove_all(folder_ / "bad");
    write_capture(folder_ / "bad", bad);
    test::expect_error([&] { read_capture(folder_ / "bad"); }, ErrorCode::kInvalidArgument, {"capture.json", what});
  };
  const std::vector<uint64_t> held(num_experts, 1);
  refuse({.epoch = 1, .ranks = {1, 3}, .holders = {held}}, "experts held by rank 3");
  refuse({.epoch = 1, .ranks = {-1}, .holders = {held}}, "experts held by rank -1");
  refuse({.epoch = 1, .ranks = std::vector<int32_t>(65, 1), .holders = {}}, "65 ranks that hold experts");
  refuse({.epoch = 1, .ranks = {1}, .holders = {std::vector<uint64_t>(num_experts + 1, 1)}}, "experts in a layer");
  refuse({.epoch = 1, .ranks = {1}, .holders = {std::vector<uint64_t>(num_experts, 2)}}, "an expert with holders 2");
  refuse({.epoch = 1, .ranks = {1}, .holders = {std::vector<uint64_t>(num_experts, 0)}}, "an expert with holders 0");
  Capture many = good;
  many.info.worker_changes.resize(kMaxWorkerChanges + 1);
  write_capture(folder_ / "many", many);
  test::expect_error([&] { read_capture(folder_ / "many"); }, ErrorCode::kInvalidArgument, {"1025 changes of workers"});
}

TEST_F(CaptureFiles, MissingOrTornFoldersAreRefused) {
  test::expect_error([&] { read_capture(folder_); }, ErrorCode::kNotFound,
                     {folder_.string() + " holds no capture; allowed: a folder with a capture.json"});
  const std::filesystem::path unreadable = folder_ / std::string(300, 'x');
  test::expect_error([&] { read_capture(unreadable); }, ErrorCode::kUnavailable, {" cannot be read: File name too long"});
  write_capture(folder_, make_made_capture());
  std::filesystem::resize_file(folder_ / "rank-2.spans", 100);
  EXPECT_THROW(read_capture(folder_), Error);
  std::filesystem::remove(folder_ / "rank-2.spans");
  EXPECT_THROW(read_capture(folder_), Error);
  std::ofstream(folder_ / "capture.json") << "{\"version\": 1}";
  EXPECT_THROW(read_capture(folder_), Error);
}

TEST_F(CaptureFiles, FoldersAreTriedBeforeTheyAreNeeded) {
  EXPECT_NO_THROW(prepare_capture_folder(folder_ / "a" / "b"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "a" / "b"));
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THROW(prepare_capture_folder(folder_ / "file"), Error);
  EXPECT_THROW(prepare_capture_folder("/proc/ferry"), Error);
  write_capture(folder_ / "taken", make_made_capture());
  EXPECT_THROW(prepare_capture_folder(folder_ / "taken"), Error);
}

TEST_F(CaptureFiles, AFullDiskIsAnErrorWithTheSystemsReason) {
  const Capture capture = make_made_capture();
  const test::NoFileRoom no_room;
  test::expect_error([&] { write_capture(folder_, capture); }, ErrorCode::kUnavailable, {"rank-0.spans: File too large"});
}

TEST(MergeCaptures, KeepsRunsApartAndArrowsWithin) {
  const Capture first = make_made_capture({.world_size = 3}), second = make_made_capture({.world_size = 2});
  const Timeline a = make_timeline(first), b = make_timeline(second);
  const Capture merged = merge_captures({first, second});
  ASSERT_EQ(merged.ranks.size(), 5U);
  for (std::size_t r = 0; r < merged.ranks.size(); ++r) EXPECT_EQ(merged.ranks[r].rank, static_cast<int32_t>(r));
  const Timeline both = make_timeline(merged);
  EXPECT_EQ(both.flows.size(), a.flows.size() + b.flows.size());
  EXPECT_EQ(both.messages.size(), a.messages.size() + b.messages.size());
  EXPECT_EQ(both.requests.size(), a.requests.size() + b.requests.size());
  EXPECT_EQ(both.steps.size(), a.steps.size() + b.steps.size());
  for (const Flow& flow : both.flows) {
    const auto rank_of = [&](int32_t slice) {
      return both.lanes[static_cast<std::size_t>(both.slices[static_cast<std::size_t>(slice)].lane)].rank;
    };
    EXPECT_EQ(rank_of(flow.dispatch), rank_of(flow.combine));
    EXPECT_EQ(rank_of(flow.experts) >= 3, rank_of(flow.dispatch) >= 3) << "an arrow from one run to the other";
  }
}

TEST(MergeCaptures, PlacesOtherHostsByTheirWallClock) {
  const Capture here = make_made_capture({.world_size = 1});
  Capture there = make_made_capture({.world_size = 1});
  there.ranks[0].boot_id = "elsewhere";
  constexpr int64_t kLater = 3'000'000'000;
  there.info.start_epoch_ns += kLater;
  const Timeline both = make_timeline(merge_captures({here, there}));
  ASSERT_EQ(both.steps.size() % 2, 0U);
  const std::size_t half = both.steps.size() / 2;
  EXPECT_EQ(both.steps[half].begin_ns - both.steps[0].begin_ns, kLater);
  EXPECT_GE(both.clock_bound_ns, kWallClockBoundNs);
}

}  // namespace
}  // namespace ferry
