#include "profiler/counters/machine_counters.h"

#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "profiler/counters/perf_group.h"
#include "profiler/counters/pmu_events.h"
#include "tests/support/temp_folder.h"

namespace ferry {
namespace {

class MachineFiles : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  std::filesystem::path root() const { return folder_.path(); }
  void put_zone(const std::string& zone, const std::string& name, uint64_t energy) {
    const std::string folder = "sys/class/powercap/" + zone + "/";
    put(folder + "name", name);
    put(folder + "max_energy_range_uj", "1000000");
    put(folder + "energy_uj", std::to_string(energy));
  }
  static CounterSource source_of(const MachineCounters& counters, Counter counter) {
    for (const CounterSource& source : counters.sources()) {
      if (source.counter == counter) return source;
    }
    ADD_FAILURE() << "nothing is said of " << static_cast<int>(counter);
    return {};
  }

  test::TempFolder folder_;
};

TEST_F(MachineFiles, AreAbsentWithAReason) {
  MachineCounters counters(root(), 7);
  EXPECT_EQ(source_of(counters, Counter::kPackageEnergy).absent, "no RAPL zone package");
  EXPECT_EQ(source_of(counters, Counter::kDramEnergy).absent, "no RAPL zone dram");
  EXPECT_EQ(source_of(counters, Counter::kSocketMemoryBytes).absent, "no memory controller's events, no resctrl");
  EXPECT_EQ(counters.sources().size(), 3U) << "few machines tell of their cores and the platform";
  const CounterReading reading = counters.take(9);
  EXPECT_EQ(reading.begin, 7U);
  EXPECT_EQ(reading.tid, 0);
  for (const uint64_t value : reading.values) EXPECT_EQ(value, kNotCounted);
}

TEST_F(MachineFiles, EnergyOfAllPackagesIsAddedUpAndStartsAnewBehindItsRange) {
  put_zone("intel-rapl:0", "package-0", 100);
  put_zone("intel-rapl:0:0", "core", 1);
  put_zone("intel-rapl:0:1", "dram", 5000);
  put_zone("intel-rapl:1", "package-1", 999'900);
  put_zone("intel-rapl:2", "psys", 1);
  MachineCounters counters(root(), 0);
  EXPECT_EQ(source_of(counters, Counter::kPackageEnergy).source, "powercap");
  put_zone("intel-rapl:0", "package-0", 400);
  put_zone("intel-rapl:1", "package-1", 50);  // it was at its range meanwhile
  put_zone("intel-rapl:0:1", "dram", 5007);
  put_zone("intel-rapl:0:0", "core", 100);
  const CounterReading reading = counters.take(1);
  EXPECT_EQ(reading[Counter::kPackageEnergy], 300U + 150U);
  EXPECT_EQ(reading[Counter::kDramEnergy], 7U);
  put("sys/class/powercap/intel-rapl:1/energy_uj", "none");
  EXPECT_EQ(counters.take(2)[Counter::kPackageEnergy], kNotCounted) << "a part of it says nothing";
}

TEST_F(MachineFiles, EnergyOfThePlatformAndOfCoresIsCountedWhereNoPackageIs) {
  put_zone("intel-rapl:0", "psys", 100);
  put_zone("intel-rapl:1", "core", 10);
  put_zone("intel-rapl:2", "uncore", 1);
  MachineCounters counters(root(), 0);
  EXPECT_EQ(source_of(counters, Counter::kPackageEnergy).absent, "no RAPL zone package");
  EXPECT_EQ(source_of(counters, Counter::kPlatformEnergy).source, "powercap");
  put_zone("intel-rapl:0", "psys", 1100);
  put_zone("intel-rapl:1", "core", 30);
  put_zone("intel-rapl:2", "uncore", 7);
  const CounterReading reading = counters.take(1);
  EXPECT_EQ(reading[Counter::kPackageEnergy], kNotCounted);
  EXPECT_EQ(reading[Counter::kPlatformEnergy], 1000U);
  EXPECT_EQ(reading[Counter::kCoreEnergy], 20U);
}

TEST_F(MachineFiles, CoresAreNotCountedBesideTheirPackage) {
  put_zone("intel-rapl:0", "package-0", 100);
  put_zone("intel-rapl:0:0", "core", 10);
  put_zone("intel-rapl:1", "psys", 1000);
  MachineCounters counters(root(), 0);
  put_zone("intel-rapl:0:0", "core", 20);
  put_zone("intel-rapl:1", "psys", 1005);
  const CounterReading reading = counters.take(1);
  EXPECT_EQ(reading[Counter::kCoreEnergy], kNotCounted);
  EXPECT_EQ(reading[Counter::kPackageEnergy], 0U);
  EXPECT_EQ(reading[Counter::kPlatformEnergy], 5U);
}

/// "Joules" that are page faults of a core: what the kernel counts here, too.
TEST_F(MachineFiles, ThePmuTellsOfThePlatformAlone) {
  const std::string device = "sys/bus/event_source/devices/power/";
  put(device + "type", std::to_string(PERF_TYPE_SOFTWARE));
  put(device + "cpumask", "0");
  put(device + "format/event", "config:0-7");
  put(device + "events/energy-psys", "event=" + std::to_string(PERF_COUNT_SW_PAGE_FAULTS_MIN));
  put(device + "events/energy-psys.scale", "1e-6");
  put(device + "events/energy-psys.unit", "Joules");
  MachineCounters counters(root(), 0);
  EXPECT_EQ(source_of(counters, Counter::kPackageEnergy).absent, "no RAPL zone package");
  const CounterSource source = source_of(counters, Counter::kPlatformEnergy);
  if (source.source.empty()) GTEST_SKIP() << source.absent;
  EXPECT_EQ(source.source, "perf power");
  EXPECT_NE(counters.take(1)[Counter::kPlatformEnergy], kNotCounted);
}

TEST_F(MachineFiles, EnergyThatNobodyMayReadIsAbsent) {
  put_zone("intel-rapl:0", "package-0", 100);
  std::filesystem::remove(root() / "sys/class/powercap/intel-rapl:0/energy_uj");
  std::filesystem::create_directory(root() / "sys/class/powercap/intel-rapl:0/energy_uj");  // cannot be read, even by root
  const MachineCounters counters(root(), 0);
  EXPECT_EQ(source_of(counters, Counter::kPackageEnergy).source, "");
  EXPECT_EQ(source_of(counters, Counter::kPackageEnergy).absent.substr(0, 11), "energy_uj: ");
}

TEST_F(MachineFiles, ResctrlCountsBytesOfAllDomains) {
  put("sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "1000");
  put("sys/fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes", "5000");
  MachineCounters counters(root(), 0);
  EXPECT_EQ(source_of(counters, Counter::kSocketMemoryBytes).source, "resctrl");
  put("sys/fs/resctrl/mon_data/mon_L3_00/mbm_total_bytes", "1640");
  put("sys/fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes", "5064");
  EXPECT_EQ(counters.take(1)[Counter::kSocketMemoryBytes], 704U);
  put("sys/fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes", "Unavailable");
  EXPECT_EQ(counters.take(2)[Counter::kSocketMemoryBytes], kNotCounted);
}

TEST_F(MachineFiles, EventsAreWhatTheirDeviceSays) {
  const std::string device = "sys/bus/event_source/devices/uncore_imc_3/";
  put(device + "type", "17");
  put(device + "cpumask", "0,24-25");
  put(device + "format/event", "config:0-7");
  put(device + "format/umask", "config:8-15,32");
  put(device + "format/edge", "config1:18");
  put(device + "events/cas_count_read", "event=0x04,umask=259,edge");
  put(device + "events/cas_count_read.scale", "6.103515625e-5");
  put(device + "events/cas_count_read.unit", "MiB");
  const auto event = find_pmu_event(root() / device, "cas_count_read");
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->type, 17U);
  EXPECT_EQ(event->config, 0x04U | 0x03U << 8 | uint64_t{1} << 32);
  EXPECT_EQ(event->config1, uint64_t{1} << 18);
  EXPECT_EQ(event->cpus, (std::vector<int>{0, 24, 25}));
  EXPECT_DOUBLE_EQ(event->scale * 1048576, 64);
  EXPECT_EQ(event->unit, "MiB");
  EXPECT_FALSE(find_pmu_event(root() / device, "cas_count_write").has_value());
  for (const char* terms : {"event=0x104", "event=", "event=0x", "nothing=1", "../type=1", ",", "event=-1"}) {
    put(device + "events/odd", terms);
    EXPECT_FALSE(find_pmu_event(root() / device, "odd").has_value()) << terms;
  }
  put(device + "type", "many");
  EXPECT_FALSE(find_pmu_event(root() / device, "cas_count_read").has_value());
}

TEST_F(MachineFiles, ListsOfCpusAreBounded) {
  EXPECT_EQ(parse_cpu_list("0-2,7"), (std::vector<int>{0, 1, 2, 7}));
  EXPECT_TRUE(parse_cpu_list("").empty());
  for (const char* bad : {"3-1", "-1", "0-99999999", "x", "1,x", "4096"}) EXPECT_TRUE(parse_cpu_list(bad).empty()) << bad;
  std::string long_list = "0-4095";
  for (int i = 0; i < 10; ++i) long_list += ",0-4095";
  EXPECT_EQ(parse_cpu_list(long_list).size(), 4096U);
}

/// A controller whose "commands" are page faults of one core: what the kernel counts here, too.
TEST_F(MachineFiles, ControllersCountOnTheirCore) {
  const int core = sched_getcpu();
  const std::string device = "sys/bus/event_source/devices/uncore_imc_0/";
  put(device + "type", std::to_string(PERF_TYPE_SOFTWARE));
  put(device + "cpumask", std::to_string(core));
  put(device + "format/event", "config:0-7");
  put(device + "events/cas_count_read", "event=" + std::to_string(PERF_COUNT_SW_PAGE_FAULTS_MIN));
  put(device + "events/cas_count_read.scale", "6.103515625e-5");
  put(device + "events/cas_count_read.unit", "MiB");
  cpu_set_t before, only;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&only);
  CPU_SET(static_cast<std::size_t>(core), &only);
  ASSERT_EQ(sched_setaffinity(0, sizeof only, &only), 0);
  MachineCounters counters(root(), 0);
  const CounterSource source = source_of(counters, Counter::kSocketMemoryBytes);
  if (source.source.empty()) {
    sched_setaffinity(0, sizeof before, &before);
    GTEST_SKIP() << source.absent;
  }
  EXPECT_EQ(source.source, "perf uncore");
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  constexpr std::size_t kNumPages = 500;
  void* data = mmap(nullptr, kNumPages * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  madvise(data, kNumPages * page_bytes, MADV_NOHUGEPAGE);
  for (std::size_t p = 0; p < kNumPages; ++p) static_cast<volatile char*>(data)[p * page_bytes] = 1;
  const uint64_t bytes = counters.take(1)[Counter::kSocketMemoryBytes];
  munmap(data, kNumPages * page_bytes);
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_GE(bytes, kNumPages * 64) << "a line for each, and others' on this core";
  EXPECT_EQ(bytes % 64, 0U);
}

}  // namespace
}  // namespace ferry
