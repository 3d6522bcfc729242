#include <algorithm>
#include <set>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/counter_sums.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

/// Tokens by group that were of use.
std::vector<int64_t> count_tokens(const Timeline& timeline, std::size_t num_groups) {
  std::vector<int64_t> tokens(num_groups);
  for (const StepInfo& step : timeline.steps) tokens[group_index(step)] += step.num_useful();
  return tokens;
}

/// Of each host, the first of its ranks that has something to say of it.
std::vector<const RankCapture*> find_hosts(const Capture& capture) {
  std::vector<const RankCapture*> hosts;
  std::set<std::string> known;
  for (const RankCapture& rank : capture.ranks) {
    if (!rank.counters.sources.empty() && known.insert(rank.boot_id).second) hosts.push_back(&rank);
  }
  return hosts;
}

/// What watts are of.
struct Total {
  double joules = 0;
  std::string of;  // empty: nothing counted
};

/// The platform's energy has all the others in it, and the machine's other parts; a package's has its cores'.
Total find_total(const CounterSums& sums) {
  Total total;
  const auto add = [&](Counter counter, const char* name) {
    if (!sums.knows(counter)) return false;
    total.joules += sums[counter] / 1e6;
    total.of += (total.of.empty() ? "" : " + ") + std::string(name);
    return true;
  };
  if (!add(Counter::kPackageEnergy, "package")) {
    if (add(Counter::kPlatformEnergy, "platform")) return total;
    add(Counter::kCoreEnergy, "cores");
  }
  add(Counter::kDramEnergy, "DRAM");
  return total;
}

void add_host(const ReportInput& input, const RankCapture& rank, Table& table) {
  const std::vector<std::string> groups = counter_groups(input.timeline);
  for (const std::string& said : describe_absent(rank, Counter::kPackageEnergy, Counter::kPlatformEnergy)) {
    std::vector<Table::Cell> row(table.columns.size());
    row.front() = rank.host;
    row.back() = said;
    table.rows.push_back(std::move(row));
  }
  CounterGroups sums_of(groups.size());
  for (const CounterReading& reading : rank.counters.readings) {
    if (reading.tid == 0) add_reading(input, rank, reading, sums_of);
  }
  const std::vector<int64_t> tokens = count_tokens(input.timeline, groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const CounterSums& sums = sums_of[g];
    const Total total = find_total(sums);
    if (total.of.empty()) continue;
    const auto of = [&](Counter counter) { return cell_if(sums.knows(counter), sums[counter] / 1e6); };
    table.rows.push_back({rank.host, groups[g], sums.ns / 1e6, tokens[g], of(Counter::kPackageEnergy), of(Counter::kDramEnergy),
                          of(Counter::kCoreEnergy), of(Counter::kPlatformEnergy), total.of,
                          ratio_cell(total.joules, sums.ns / 1e9), ratio_cell(total.joules, static_cast<double>(tokens[g])),
                          Table::Cell()});
  }
}

}  // namespace

Table make_energy_view(const ReportInput& input) {
  Table table{
      .id = "energy",
      .title = "Energy",
      .note =
          "What the processors and memories of each host took, whoever used them. A reading, at most five a second, is divided "
          "among the steps in it by time. platform_j: of the whole machine, packages and memory among it. of: what "
          "watts and joules_per_token (of tokens of use) are of.",
      .columns = {{"host"},
                  {"phase"},
                  {"wall_ms", 3},
                  {"tokens"},
                  {"package_j", 3},
                  {"dram_j", 3},
                  {"core_j", 3},
                  {"platform_j", 3},
                  {"of"},
                  {"watts", 2},
                  {"joules_per_token", 4},
                  {"says"}}};
  for (const RankCapture* rank : find_hosts(input.capture)) add_host(input, *rank, table);
  return table;
}

}  // namespace ferry
