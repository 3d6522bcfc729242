#include "profiler/export/collectives.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

constexpr int64_t kUs = 1000;

/// A coordinator that dispatches one layer to worker 1, whose clock is right to `bound_ns`, and gets the results. Times in us:
/// the dispatch is sent 10 ‥ 20 and received 5 ‥ 22; the results are sent 30 ‥ 33 and received 9 ‥ 40.
Capture one_exchange(double bound_ns) {
  Capture capture;
  capture.info.world_size = 2;
  const auto add = [&](int32_t r, Zone zone, int64_t begin_us, int64_t end_us, uint32_t a, uint32_t b) {
    capture.ranks[static_cast<std::size_t>(r)].threads[0].records.push_back({.begin = static_cast<uint64_t>(begin_us * kUs),
                                                                             .end = static_cast<uint64_t>(end_us * kUs),
                                                                             .step = 4,
                                                                             .zone = zone,
                                                                             .layer = 2,
                                                                             .a = a,
                                                                             .b = b});
  };
  for (int32_t r = 0; r < 2; ++r) {
    RankCapture rank{.rank = r, .host = "h" + std::to_string(r), .pid = 10 + r, .begin = 0, .end = 100 * kUs};
    rank.alignment.bound_ns = r == 0 ? 0 : bound_ns;
    rank.threads.push_back({.name = "t", .tid = 100 + r});
    capture.ranks.push_back(rank);
  }
  add(0, Zone::kDispatchSend, 10, 20, 600, 1);
  add(1, Zone::kDispatchReceive, 5, 22, 600, 0);
  add(1, Zone::kCombineSend, 30, 33, 700, 0);
  add(0, Zone::kCombineReceive, 9, 40, 700, 1);
  return capture;
}

TEST(Collectives, WaitLastsUntilTheOtherSideBegins) {
  const ReportInput input(one_exchange(0));
  const RankCollectives coordinator = find_collectives(input, 0);
  ASSERT_EQ(coordinator.collectives.size(), 2U);
  const Collective& dispatch = coordinator.collectives[0];
  EXPECT_TRUE(dispatch.is_dispatch);
  EXPECT_EQ(dispatch.step, 4U);
  EXPECT_EQ(dispatch.layer, 2);
  EXPECT_EQ(dispatch.begin_ns, 10 * kUs);
  EXPECT_EQ(dispatch.elapse_ns(), 10 * kUs);
  EXPECT_EQ(dispatch.wait_ns, 0);  // the worker was there before
  EXPECT_EQ(dispatch.sent_bytes, 600);
  const Collective& combine = coordinator.collectives[1];
  EXPECT_FALSE(combine.is_dispatch);
  EXPECT_EQ(combine.wait_ns, 21 * kUs);
  EXPECT_EQ(combine.synchronization_ns, 21 * kUs);
  EXPECT_EQ(combine.transit_ns(), 10 * kUs);
  EXPECT_EQ(combine.sent_bytes, 0);  // counted at the sender

  const RankCollectives worker = find_collectives(input, 1);
  ASSERT_EQ(worker.collectives.size(), 2U);
  EXPECT_EQ(worker.collectives[0].wait_ns, 5 * kUs);
  EXPECT_EQ(worker.collectives[0].sent_bytes, 0);
  EXPECT_EQ(worker.collectives[1].wait_ns, 0);
  EXPECT_EQ(worker.collectives[1].sent_bytes, 700);
}

TEST(Collectives, WhatTheClocksCannotTellIsNoWait) {
  const ReportInput input(one_exchange(5000));
  EXPECT_EQ(find_collectives(input, 1).collectives[0].wait_ns, 0);  // 5 us late, 5 us uncertain
  EXPECT_EQ(find_collectives(input, 0).collectives[1].wait_ns, 21 * kUs);
}

TEST(Collectives, NobodyWaitsForALostSideOrForOneThatCameAfterTheEnd) {
  Capture capture = one_exchange(0);
  capture.ranks[1].threads[0].records.pop_back();  // the worker's sending
  EXPECT_EQ(find_collectives(ReportInput(capture), 0).collectives[1].wait_ns, 0);

  capture = one_exchange(0);
  capture.ranks[1].threads[0].records[0].begin = 21 * kUs;  // posted after the coordinator's sending ended
  const ReportInput late(capture);
  const Collective dispatch = find_collectives(late, 0).collectives[0];
  EXPECT_EQ(dispatch.wait_ns, 0);
  EXPECT_EQ(dispatch.transit_ns(), 10 * kUs);
}

TEST(Collectives, WaitIsForTheLastWorkerAndSynchronizationForTheFirst) {
  const ReportInput input(make_made_capture({.world_size = 5, .slow_rank = 3, .slow_factor = 7}));
  std::map<std::tuple<uint32_t, int32_t>, std::pair<int64_t, int64_t>> sends;  // first and last begin of the workers
  for (const Message& m : input.timeline.messages) {
    if (m.is_dispatch) continue;
    const auto [at, is_new] = sends.try_emplace({m.step, m.layer}, m.send_begin_ns, m.send_begin_ns);
    at->second = {std::min(at->second.first, m.send_begin_ns), std::max(at->second.second, m.send_begin_ns)};
  }
  int64_t num_uneven = 0;
  for (const Collective& c : find_collectives(input, 0).collectives) {
    EXPECT_EQ(c.wait_ns + c.transit_ns(), c.elapse_ns());
    if (c.is_dispatch) continue;
    const auto [first, last] = sends.at({c.step, c.layer});
    EXPECT_EQ(c.synchronization_ns, std::clamp<int64_t>(first - c.begin_ns, 0, c.elapse_ns()));
    EXPECT_EQ(c.wait_ns, std::clamp<int64_t>(last - c.begin_ns, 0, c.elapse_ns()));
    num_uneven += c.synchronization_ns < c.wait_ns ? 1 : 0;
  }
  EXPECT_GT(num_uneven, 0);
}

TEST(Collectives, MicroBatchesAreCollectivesOfTheirOwn) {
  test::SmallCapture small(2, 1000);
  small.exchange(1, {0, 3, 0}, 100, 120, 200, 250, 4).exchange(1, {0, 3, 1}, 150, 170, 300, 350, 4);
  const RankCollectives found = find_collectives(ReportInput(small.capture), 0);
  ASSERT_EQ(found.collectives.size(), 4U);
  for (std::size_t c = 0; c < 4; ++c) {
    EXPECT_EQ(found.collectives[c].micro_batch, c / 2);
    EXPECT_EQ(found.collectives[c].is_dispatch, c % 2 == 0);
    EXPECT_EQ(found.collectives[c].last_link - found.collectives[c].first_link, 1);
  }
}

TEST(Collectives, EveryTransferIsInOneOfThem) {
  const ReportInput input(make_made_capture({.world_size = 4}));
  for (int32_t r = 0; r < 4; ++r) {
    const RankCollectives found = find_collectives(input, r);
    std::map<int32_t, int> seen;
    int64_t num_links = 0;
    for (const Collective& c : found.collectives) {
      EXPECT_EQ(c.first_link, num_links);
      num_links = c.last_link;
      for (int32_t l = c.first_link; l < c.last_link; ++l) ++seen[found.links[static_cast<std::size_t>(l)].slice];
    }
    std::size_t num_transfers = 0;
    for (std::size_t i = 0; i < input.timeline.slices.size(); ++i) {
      const Slice& slice = input.timeline.slices[i];
      if (zone_info(slice.zone).kind != ZoneKind::kTransfer) continue;
      if (input.timeline.lanes[static_cast<std::size_t>(slice.lane)].rank != r) continue;
      ++num_transfers;
      EXPECT_EQ(seen[static_cast<int32_t>(i)], 1);
    }
    EXPECT_EQ(seen.size(), num_transfers);
    EXPECT_GT(num_transfers, 0U);
  }
}

}  // namespace
}  // namespace ferry
