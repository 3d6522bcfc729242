#include <algorithm>

#include "profiler/report/exchanges.h"
#include "profiler/report/statistics.h"
#include "profiler/report/step_slices.h"
#include "profiler/report/views.h"

namespace ferry {

Table make_straggler_view(const ReportInput& input) {
  Table table{.id = "straggler",
              .title = "Stragglers",
              .note =
                  "In every layer the worker that answers last gets a vote if it is later than the others' median by more "
                  "than the clock bound and 5 % of the exchange. Cause: where it spends most above the others' median; "
                  "late start: its rows reached it late (a slow link, or it did not run). rows_ratio: its rows over the "
                  "others' in those layers. second_opinion tests the mean time from rows to "
                  "reply, on each rank's own clock. " +
                  clock_note(input),
              .columns = {{"rank"},
                          {"host"},
                          {"collectives"},
                          {"votes"},
                          {"votes_share", 4},
                          {"steps_last_share", 4},
                          {"late_mean_us", 3},
                          {"late_max_us", 3},
                          {"late_share", 4},
                          {"cause"},
                          {"excess_us", 3},
                          {"rows_ratio", 3},
                          {"work_us", 3},
                          {"waited_us_per_step", 3},
                          {"second_opinion"},
                          {"clock_bound_us", 3}}};
  const std::vector<StragglerTally> tallies = tally_stragglers(input);
  std::vector<double> work;
  for (const StragglerTally& tally : tallies) work.push_back(tally.work_ns);
  const std::optional<OutlierTest> test = test_largest(work);
  const double slowest = work.empty() ? 0 : *std::max_element(work.begin(), work.end());
  for (const StragglerTally& tally : tallies) {
    const auto votes = static_cast<double>(tally.votes);
    Table::Cell cause, opinion;
    if (tally.votes > 0) cause = cause_name(tally.cause());
    if (test && tally.work_ns == slowest) opinion = (test->is_outlier ? "outlier: " : "no outlier: ") + test->text;
    table.rows.push_back({static_cast<int64_t>(tally.rank), input.capture.ranks[static_cast<std::size_t>(tally.rank)].host,
                          tally.collectives, tally.votes, ratio_cell(votes, static_cast<double>(tally.collectives)),
                          ratio_cell(static_cast<double>(tally.steps_last), static_cast<double>(tally.steps)),
                          ratio_cell(to_us(tally.late_ns), votes), us_cell(tally.max_late_ns),
                          ratio_cell(static_cast<double>(tally.late_ns), static_cast<double>(tally.elapsed_ns)), cause,
                          ratio_cell(to_us(tally.excess[tally.cause()]), votes), ratio_cell(tally.rows, tally.other_rows),
                          tally.work_ns / 1e3, ratio_cell(to_us(tally.waited_ns), static_cast<double>(tally.steps)), opinion,
                          tally.bound_ns / 1e3});
  }
  return table;
}

}  // namespace ferry
