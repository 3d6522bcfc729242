#include <algorithm>

#include "profiler/report/lost_time/lost_time.h"
#include "profiler/report/statistics.h"
#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

Table::Cell median_cell(const std::vector<int64_t>& ns) {
  const std::vector<double> values(ns.begin(), ns.end());
  return cell_if(!ns.empty(), median(values) / 1e3);
}

Table::Cell cause_cell(const RankLoss& loss) {
  if (loss.total() <= 0) return std::monostate{};
  return loss_name(static_cast<Loss>(std::max_element(loss.ns.begin(), loss.ns.end()) - loss.ns.begin()));
}

double bound_against_workers(const ReportInput& input, int32_t rank) {
  double bound_ns = 0;
  for (std::size_t other = 1; other < input.capture.ranks.size(); ++other)
    bound_ns = std::max(bound_ns, clock_bound_ns(input, rank, static_cast<int32_t>(other)));
  return bound_ns;
}

}  // namespace

Table make_straggler_view(const ReportInput& input) {
  Table table{
      .id = "straggler",
      .title = "Who is waited for",
      .note =
          "By how much steps would be shorter if the rank had not been the last: in every exchange the last reply's arrival "
          "minus the second-last's, the coordinator counted as a party. saved = stopped (its process did not run at all) + "
          "no_core (its threads were ready and had no core) + link + more_rows + slow (longer for the same rows) + order (its "
          "rows were sent last); the last four against the other workers. us columns are a step. rows_ratio: its rows over "
          "the others' where it was last. " +
          clock_note(input),
      .columns = {{"rank"},
                  {"host"},
                  {"exchanges"},
                  {"last"},
                  {"last_share", 4},
                  {"saved_us", 3},
                  {"saved_share", 4},
                  {"cause"},
                  {"stopped_us", 3},
                  {"no_core_us", 3},
                  {"link_us", 3},
                  {"more_rows_us", 3},
                  {"slow_us", 3},
                  {"order_us", 3},
                  {"stops"},
                  {"stop_p50_us", 3},
                  {"core_wait_us", 3},
                  {"preemptions"},
                  {"rows_ratio", 3},
                  {"clock_bound_us", 3}}};
  const LostTime lost = find_lost_time(input);
  const auto steps = static_cast<double>(input.timeline.steps.size());
  const auto steps_ns = static_cast<double>(total_step_ns(input.timeline));
  for (const RankLoss& loss : lost.ranks) {
    std::vector<Table::Cell> row = {int64_t{loss.rank},
                                    input.capture.ranks[static_cast<std::size_t>(loss.rank)].host,
                                    loss.exchanges,
                                    loss.last,
                                    ratio_cell(static_cast<double>(loss.last), static_cast<double>(loss.exchanges)),
                                    ratio_cell(to_us(loss.total()), steps),
                                    ratio_cell(static_cast<double>(loss.total()), steps_ns),
                                    cause_cell(loss)};
    for (const int64_t ns : loss.ns) row.push_back(ratio_cell(to_us(ns), steps));
    std::vector<int64_t> stops_ns;
    for (const Interval& stop : loss.stops) stops_ns.push_back(stop.end - stop.begin);
    row.emplace_back(std::ssize(stops_ns));
    row.push_back(median_cell(stops_ns));
    row.push_back(ratio_cell(to_us(loss.core_wait_ns), steps));
    row.emplace_back(loss.preemptions);
    row.push_back(ratio_cell(static_cast<double>(loss.rows), loss.other_rows));
    row.emplace_back(bound_against_workers(input, loss.rank) / 1e3);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace ferry
