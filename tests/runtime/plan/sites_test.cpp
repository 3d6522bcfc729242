#include "runtime/plan/sites.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace ferry {
namespace {

using Places = std::vector<int64_t>;

PlanHost host_of(int64_t count, HostRole role) { return {.name = "h", .count = count, .role = role}; }

TEST(PlanSites, AllShareTheOneHostThereIs) {
  const std::vector<PlanHost> hosts{host_of(1, HostRole::kAny)};
  const PlanSites sites = make_sites(hosts, 2, 3);
  EXPECT_TRUE(sites.is_together);
  EXPECT_EQ(sites.coordinators_on, Places{2});
  EXPECT_EQ(sites.workers_on, Places{3});
}

TEST(PlanSites, CoordinatorsComeFirstAndLeaveTheLastHostToWorkers) {
  const std::vector<PlanHost> hosts{host_of(3, HostRole::kAny)};
  const PlanSites one = make_sites(hosts, 1, 3);
  EXPECT_FALSE(one.is_together);
  EXPECT_EQ(one.coordinator_host, Places{0});
  EXPECT_EQ(one.worker_host, (Places{1, 2, 1}));
  const PlanSites many = make_sites(hosts, 4, 1);
  EXPECT_EQ(many.coordinator_host, (Places{0, 1, 0, 1}));
  EXPECT_EQ(many.worker_host, Places{2});
  EXPECT_EQ(many.num_coordinator_hosts(), 2);
  EXPECT_EQ(many.num_worker_hosts(), 1);
  EXPECT_EQ(many.most_coordinators(), 2);
}

TEST(PlanSites, RolesSayWhoGoesWhere) {
  const std::vector<PlanHost> hosts{host_of(2, HostRole::kWorkers), host_of(1, HostRole::kCoordinators),
                                    host_of(1, HostRole::kAny)};
  const PlanSites sites = make_sites(hosts, 1, 3);
  EXPECT_EQ(sites.coordinator_host, Places{2});
  EXPECT_EQ(sites.worker_host, (Places{0, 1, 3}));
  const PlanSites two = make_sites(hosts, 2, 2);
  EXPECT_EQ(two.coordinator_host, (Places{2, 3}));
  EXPECT_EQ(two.worker_host, (Places{0, 1}));
}

TEST(PlanSites, ARoleThatNoHostHasIsRefused) {
  const std::vector<PlanHost> workers{host_of(4, HostRole::kWorkers)}, coordinators{host_of(4, HostRole::kCoordinators)};
  test::expect_error([&] { make_sites(workers, 1, 1); }, ErrorCode::kInvalidArgument, {"no host may carry a coordinator"});
  test::expect_error([&] { make_sites(coordinators, 1, 1); }, ErrorCode::kInvalidArgument, {"no host may carry a worker"});
}

TEST(SharedView, LiesBetweenWhatWasMeasured) {
  PlanHost host;
  host.alone.expert_call = 9;
  const auto call = [&](int64_t workers) {
    return SharedView(host, workers).of([](const RankCosts& costs) { return costs.expert_call; });
  };
  EXPECT_DOUBLE_EQ(call(3), 9);  // nothing of ranks that share it
  host.together = {{.workers = 1, .costs = {.expert_call = 2}},
                   {.workers = 2, .costs = {.expert_call = 4}},
                   {.workers = 4, .costs = {.expert_call = 5}}};
  EXPECT_DOUBLE_EQ(call(0), 9);
  EXPECT_DOUBLE_EQ(call(1), 2);
  EXPECT_DOUBLE_EQ(call(2), 4);
  EXPECT_DOUBLE_EQ(call(3), 4.5);
  EXPECT_DOUBLE_EQ(call(8), 7);
  host.together.back().costs.expert_call = 0;
  EXPECT_DOUBLE_EQ(call(8), 0);  // not below
}

TEST(Exchange, OverALinkTakesTheSlowerOfLinkAndSockets) {
  PlanHost host{.link_s = 1, .message_s = 0.25, .link_bytes_per_s = 10, .handling = {{{1, 2}, {101, 22}}}};
  EXPECT_DOUBLE_EQ(link_exchange_s(host, 1, 101), 1 + 20);  // sockets take 20 s, the link 10.1
  EXPECT_DOUBLE_EQ(link_exchange_s(host, 3, 1), 1 + 0.5 + 0.1);
  double before = link_exchange_s(host, 2, 1000);
  for (int i = 0; i < 8; ++i) {
    host.link_bytes_per_s *= 2;
    const double now = link_exchange_s(host, 2, 1000);
    EXPECT_LE(now, before);  // more bandwidth is never slower
    before = now;
  }
}

TEST(Exchange, WithinAHostFollowsItsCurves) {
  PlanHost host{.link_s = 100, .link_bytes_per_s = 1};
  EXPECT_DOUBLE_EQ(host_exchange_s(host, 1, 10), 110);  // as over a link, if it was not measured
  host.exchange = {{.workers = 1, .curve = {{{10, 1}, {20, 2}}}}, {.workers = 3, .curve = {{{10, 3}, {20, 4}}}}};
  EXPECT_DOUBLE_EQ(host_exchange_s(host, 1, 15), 1.5);
  EXPECT_DOUBLE_EQ(host_exchange_s(host, 2, 15), 2.5);
  EXPECT_DOUBLE_EQ(host_exchange_s(host, 5, 15), 5.5);
  for (int64_t workers = 2; workers < 10; ++workers)
    EXPECT_GE(host_exchange_s(host, workers, 15), host_exchange_s(host, workers - 1, 15));
}

}  // namespace
}  // namespace ferry
