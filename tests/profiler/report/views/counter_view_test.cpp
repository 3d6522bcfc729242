#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "profiler/report/views/views.h"
#include "tests/support/made_capture.h"
#include "tests/support/small_capture.h"

namespace ferry {
namespace {

CounterReading counted(int32_t tid, uint64_t begin, uint64_t end, uint32_t step = kNoStep) {
  CounterReading reading{.begin = begin, .end = end, .step = step, .tid = tid};
  reading.values.fill(kNotCounted);
  return reading;
}

/// A prefill of 1 us, 0.5 us between steps, and a decode of 2 us.
test::SmallCapture counted_steps() {
  test::SmallCapture small(2, 10'000);
  small.step(0, Phase::kPrefill, 1000, 2000, 8, 1).step(1, Phase::kDecode, 2500, 4500, 4, 4);
  for (RankCapture& rank : small.capture.ranks) rank.boot_id = "same";
  return small;
}

std::size_t find_row(const Table& table, const std::string& column, const std::string& value, const std::string& phase) {
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    if (!test::is_empty(table, r, column) && test::text(table, r, column) == value && !test::is_empty(table, r, "phase") &&
        test::text(table, r, "phase") == phase)
      return r;
  }
  ADD_FAILURE() << "no row of " << value << " in " << phase;
  return 0;
}

TEST(CounterView, DividesAThreadsReadingsAmongStepsByTime) {
  test::SmallCapture small = counted_steps();
  CounterCapture& counters = small.capture.ranks[0].counters;
  counters.sources = {{Counter::kCycles, "perf", ""}};
  CounterReading reading = counted(100, 1000, 4500, 1);
  reading[Counter::kCycles] = 7000;
  reading[Counter::kInstructions] = 14'000;
  reading[Counter::kLlcMisses] = 700;
  reading[Counter::kTaskClock] = 1750;
  reading[Counter::kRunQueueDelay] = 350'000;
  counters.readings = {reading};
  const Table table = make_counter_view(ReportInput(small.capture));
  ASSERT_EQ(table.rows.size(), 3U);
  const std::size_t prefill = find_row(table, "thread", "engine", "prefill"),
                    decode = find_row(table, "thread", "engine", "decode"),
                    outside = find_row(table, "thread", "engine", "outside of steps");
  EXPECT_EQ(test::number(table, prefill, "cycles"), 2000);
  EXPECT_EQ(test::number(table, decode, "cycles"), 4000);
  EXPECT_EQ(test::number(table, outside, "cycles"), 1000);
  EXPECT_EQ(test::number(table, decode, "wall_ms"), 0.002);
  EXPECT_EQ(test::number(table, decode, "ipc"), 2);
  EXPECT_DOUBLE_EQ(test::number(table, decode, "miss_gb_per_s"), 400 * 64 / 1000.0) << "of its time on a core";
  EXPECT_NEAR(test::number(table, decode, "run_queue_delay_us"), 200, 1e-9);
  EXPECT_TRUE(test::is_empty(table, decode, "minor_faults")) << "nobody counted them";
  EXPECT_TRUE(test::is_empty(table, decode, "says"));
}

TEST(CounterView, GivesAnOperatorsCountsToItsStep) {
  test::SmallCapture small = counted_steps();
  CounterCapture& counters = small.capture.ranks[1].counters;
  counters.sources = {{Counter::kMinorFaults, "perf", ""}};
  CounterReading part = counted(101, 900, 4600, 1), zone = part;
  part.zone = zone.zone = Zone::kOProj;
  part.is_part = part.is_scaled = true;
  part[Counter::kMinorFaults] = 5;
  zone[Counter::kMinorFaults] = 2;
  counters.readings = {part, zone, zone};
  const Table table = make_counter_view(ReportInput(small.capture));
  ASSERT_EQ(table.rows.size(), 2U);
  const std::size_t by_zone = find_row(table, "operator", "MatMul.o_proj", "decode"), by_part = 1 - by_zone;
  EXPECT_EQ(test::number(table, by_zone, "minor_faults"), 4);
  EXPECT_EQ(test::number(table, by_zone, "rank"), 1);
  EXPECT_EQ(test::text(table, by_part, "part"), "attention");
  EXPECT_TRUE(test::is_empty(table, by_part, "operator"));
  EXPECT_EQ(test::number(table, by_part, "minor_faults"), 5);
  EXPECT_EQ(test::text(table, by_part, "says"), "extrapolated: counters took turns");
}

TEST(CounterView, SaysOnceAndLastWhyCountersAreAbsent) {
  test::SmallCapture small = counted_steps();
  small.capture.ranks[0].counters.sources = {{Counter::kCycles, "", "no PMU (ENOENT)"},
                                             {Counter::kInstructions, "", "no PMU (ENOENT)"},
                                             {Counter::kMinorFaults, "perf", ""},
                                             {Counter::kMigrations, "", "not allowed (EPERM)"},
                                             {Counter::kDramEnergy, "", "no RAPL zone dram"}};
  CounterReading reading = counted(101, 2600, 4400, 1);
  reading[Counter::kMinorFaults] = 5;
  small.capture.ranks[1].counters.sources = {{Counter::kMinorFaults, "perf", ""}};
  small.capture.ranks[1].counters.readings = {reading};
  const ReportInput input(small.capture);
  const Table table = make_counter_view(input);
  ASSERT_EQ(table.rows.size(), 3U);
  EXPECT_EQ(test::number(table, 0, "minor_faults"), 5);
  EXPECT_EQ(test::text(table, 1, "says"), "absent: cycles, instructions: no PMU (ENOENT)");
  EXPECT_EQ(test::text(table, 2, "says"), "absent: migrations: not allowed (EPERM)");
  const Table energy = make_energy_view(input);
  ASSERT_EQ(energy.rows.size(), 1U);
  EXPECT_EQ(test::text(energy, 0, "says"), "absent: dram_energy: no RAPL zone dram");
}

TEST(CounterView, ThreadsThatWereLeftOutAreCounted) {
  test::SmallCapture small = counted_steps();
  CounterCapture& counters = small.capture.ranks[1].counters;
  counters.sources = {{Counter::kMinorFaults, "perf", ""}};
  counters.num_threads_left_out = 3;
  const Table table = make_counter_view(ReportInput(small.capture));
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(test::number(table, 0, "rank"), 1);
  EXPECT_EQ(test::text(table, 0, "says"), "left out: 3 threads: their files would be too many");
}

TEST(RunView, SaysInALineWhatWasNotCounted) {
  test::SmallCapture small = counted_steps();
  const auto said = [&] {
    const Table table = make_run_view(ReportInput(small.capture));
    return test::is_empty(table, 0, "counters") ? "" : test::text(table, 0, "counters");
  };
  EXPECT_EQ(said(), "") << "nothing was to be counted";
  for (RankCapture& rank : small.capture.ranks) {
    rank.counters.sources = {{Counter::kCycles, "", "no PMU (ENOENT)"},
                             {Counter::kStalledCycles, "", "no PMU (ENOENT)"},
                             {Counter::kMinorFaults, "stat", ""}};
  }
  EXPECT_EQ(said(), "absent: cycles, stalled_cycles: no PMU (ENOENT)") << "once for all ranks";
  small.capture.ranks[0].counters.sources.push_back({Counter::kPackageEnergy, "", "no RAPL zone package"});
  small.capture.ranks[1].counters.num_threads_left_out = 1;
  EXPECT_EQ(said(),
            "absent: cycles, stalled_cycles: no PMU (ENOENT); absent: package_energy: no RAPL zone package (rank 0); "
            "left out: 1 thread: their files would be too many (rank 1)");
}

TEST(EnergyView, CountsAHostOnceAndDividesByTokens) {
  test::SmallCapture small = counted_steps();
  for (RankCapture& rank : small.capture.ranks) {
    rank.counters.sources = {{Counter::kPackageEnergy, "powercap", ""}};
    CounterReading reading = counted(0, 1000, 4500);
    reading[Counter::kPackageEnergy] = 3500;
    rank.counters.readings = {reading};
  }
  const Table table = make_energy_view(ReportInput(small.capture));
  ASSERT_EQ(table.rows.size(), 3U) << "of one host";
  const std::size_t decode = find_row(table, "host", "host-0", "decode");
  EXPECT_DOUBLE_EQ(test::number(table, decode, "package_j"), 0.002);
  EXPECT_TRUE(test::is_empty(table, decode, "dram_j"));
  EXPECT_DOUBLE_EQ(test::number(table, decode, "watts"), 1000);
  EXPECT_DOUBLE_EQ(test::number(table, decode, "joules_per_token"), 0.0005);
  EXPECT_EQ(test::number(table, decode, "tokens"), 4);
}

/// The `of`, and the watts, of a decode of 2 us in a machine that took `energies` while it ran and for 1.5 us more.
std::pair<std::string, int64_t> watts_of(const std::vector<std::pair<Counter, uint64_t>>& energies) {
  test::SmallCapture small = counted_steps();
  RankCapture& rank = small.capture.ranks[0];
  CounterReading reading = counted(0, 1000, 4500);
  for (const auto& [counter, energy] : energies) {
    rank.counters.sources.push_back({counter, "powercap", ""});
    reading[counter] = energy;
  }
  rank.counters.readings = {reading};
  const Table table = make_energy_view(ReportInput(small.capture));
  const std::size_t decode = find_row(table, "host", "host-0", "decode");
  return {test::text(table, decode, "of"), std::llround(test::number(table, decode, "watts"))};
}

TEST(EnergyView, CountsNoPartTwiceAndNamesWhatWattsAreOf) {
  using Watts = std::pair<std::string, int64_t>;
  const std::pair<Counter, uint64_t> package{Counter::kPackageEnergy, 3500}, dram{Counter::kDramEnergy, 350},
      cores{Counter::kCoreEnergy, 1750}, platform{Counter::kPlatformEnergy, 7000};
  EXPECT_EQ(watts_of({package, dram, platform}), Watts("package + DRAM", 1100));
  EXPECT_EQ(watts_of({cores, dram, platform}), Watts("platform", 2000));
  EXPECT_EQ(watts_of({cores, dram}), Watts("cores + DRAM", 600));
  EXPECT_EQ(watts_of({dram}), Watts("DRAM", 100));
}

TEST(CounterView, IsThereOnlyWhereCountersAre) {
  for (const Table& table : make_views(ReportInput(make_made_capture()))) {
    EXPECT_NE(table.id, "counter");
    EXPECT_NE(table.id, "energy");
    EXPECT_NE(table.id, "memory");
  }
}

}  // namespace
}  // namespace ferry
