#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/counter_sums.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

constexpr double kLineBytes = 64;  // that a miss of the last level brings

/// Whose counts a row has: a thread (0: the machine), all of it, or in a part of layers, or in an operator.
using Counted = std::tuple<int32_t, bool, bool, Zone>;

Counted counted_of(const CounterReading& reading) {
  return {reading.tid, reading.zone != Zone::kStep, reading.is_part, reading.zone};
}

std::string thread_name(const RankCapture& rank, int32_t tid) {
  if (tid == 0) return "machine";
  for (const ThreadCapture& thread : rank.threads) {
    if (thread.tid == tid && !thread.is_device) return thread.name;
  }
  return std::to_string(tid);
}

Table::Cell count_cell(const CounterSums& sums, Counter counter) {
  if (!sums.knows(counter)) return std::monostate{};
  return static_cast<int64_t>(std::llround(sums[counter]));
}

Table::Cell scaled_cell(const CounterSums& sums, Counter counter, double scale) {
  return cell_if(sums.knows(counter), sums[counter] * scale);
}

Table::Cell quotient_cell(const CounterSums& sums, Counter above, Counter below) {
  if (!sums.knows(above) || !sums.knows(below)) return std::monostate{};
  return ratio_cell(sums[above], sums[below]);
}

/// Bytes per nanosecond are GB/s.
Table::Cell rate_cell(const CounterSums& sums, Counter counter, double bytes, double ns) {
  return sums.knows(counter) ? ratio_cell(sums[counter] * bytes, ns) : Table::Cell();
}

std::vector<Table::Cell> make_row(const RankCapture& rank, const Counted& counted, const std::string& group,
                                  const CounterSums& sums) {
  const auto [tid, is_operator, is_part, zone] = counted;
  const Table::Cell none;
  const auto name = [](const char* text) { return Table::Cell(std::string(text)); };
  const double core_ns = sums.knows(Counter::kTaskClock) ? sums[Counter::kTaskClock] : sums.ns;
  return {int64_t{rank.rank},
          thread_name(rank, tid),
          is_operator ? name(part_name(zone_info(zone).part)) : none,
          is_operator && !is_part ? name(zone_info(zone).name) : none,
          group,
          cell_if(!is_operator, sums.ns / 1e6),
          scaled_cell(sums, Counter::kTaskClock, 1e-6),
          count_cell(sums, Counter::kCycles),
          count_cell(sums, Counter::kInstructions),
          quotient_cell(sums, Counter::kInstructions, Counter::kCycles),
          quotient_cell(sums, Counter::kStalledCycles, Counter::kCycles),
          count_cell(sums, Counter::kLlcReferences),
          count_cell(sums, Counter::kLlcMisses),
          is_operator ? none : rate_cell(sums, Counter::kLlcMisses, kLineBytes, core_ns),
          rate_cell(sums, Counter::kSocketMemoryBytes, 1, sums.ns),
          count_cell(sums, Counter::kMinorFaults),
          count_cell(sums, Counter::kMajorFaults),
          count_cell(sums, Counter::kContextSwitches),
          count_cell(sums, Counter::kMigrations),
          scaled_cell(sums, Counter::kRunQueueDelay, 1e-3),
          sums.is_scaled ? name("extrapolated: counters took turns") : none};
}

/// A row for each reason that something is absent or left out for.
void add_uncounted(const RankCapture& rank, Table& table) {
  std::vector<std::string> uncounted = describe_absent(rank, Counter::kCycles, Counter::kSocketMemoryBytes);
  if (std::optional<std::string> left_out = describe_left_out(rank)) uncounted.push_back(*std::move(left_out));
  for (const std::string& said : uncounted) {
    std::vector<Table::Cell> row(table.columns.size());
    row.front() = int64_t{rank.rank};
    row.back() = said;
    table.rows.push_back(std::move(row));
  }
}

void add_rank(const ReportInput& input, const RankCapture& rank, Table& table) {
  const std::vector<std::string> groups = counter_groups(input.timeline);
  std::map<Counted, CounterGroups> sums_of;
  for (const CounterReading& reading : rank.counters.readings) {
    CounterGroups& sums = sums_of[counted_of(reading)];
    sums.resize(groups.size());
    add_reading(input, rank, reading, sums);
  }
  for (const auto& [counted, by_group] : sums_of) {
    const bool is_machine = std::get<0>(counted) == 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const CounterSums& sums = by_group[g];
      if (sums.ns > 0 && (!is_machine || sums.knows(Counter::kSocketMemoryBytes)))
        table.rows.push_back(make_row(rank, counted, groups[g], sums));
    }
  }
}

}  // namespace

Table make_counter_view(const ReportInput& input) {
  Table table{
      .id = "counter",
      .title = "Counters",
      .note =
          "What the processor and the kernel counted of each thread, and of operators at level 2: by the operator "
          "where programs may read the processor's counters themselves, else by the part of a layer. A reading that "
          "covers several steps is divided by time. miss_gb_per_s: 64 bytes for each miss of the last level, by the "
          "thread's time on a core; socket_gb_per_s: of the whole machine. What is absent is said once, in the last rows.",
      .columns = {{"rank"},
                  {"thread"},
                  {"part"},
                  {"operator"},
                  {"phase"},
                  {"wall_ms", 3},
                  {"task_clock_ms", 3},
                  {"cycles"},
                  {"instructions"},
                  {"ipc", 2},
                  {"stalled_share", 3},
                  {"llc_references"},
                  {"llc_misses"},
                  {"miss_gb_per_s", 3},
                  {"socket_gb_per_s", 3},
                  {"minor_faults"},
                  {"major_faults"},
                  {"context_switches"},
                  {"migrations"},
                  {"run_queue_delay_us", 1},
                  {"says"}}};
  for (const RankCapture& rank : input.capture.ranks) add_rank(input, rank, table);
  for (const RankCapture& rank : input.capture.ranks) add_uncounted(rank, table);
  return table;
}

}  // namespace ferry
