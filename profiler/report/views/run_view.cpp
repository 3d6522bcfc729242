#include <algorithm>
#include <string>

#include "profiler/report/lost_time/recording_cost.h"
#include "profiler/report/lost_time/waiting.h"
#include "profiler/report/statistics.h"
#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/counter_sums.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

/// Times of requests in ms, of those that the capture saw long enough.
struct Latencies {
  std::vector<double> ttft, tpot, itl;
};

Latencies find_latencies(const Timeline& timeline) {
  Latencies found;
  const StepIndex index(timeline);
  const IntervalSet asides = find_asides(timeline);
  const auto ms_between = [&](int64_t begin_ns, int64_t end_ns) {
    return to_us(end_ns - begin_ns - total(clip(asides, {begin_ns, end_ns}))) / 1e3;
  };
  for (const RequestInfo& request : timeline.requests) {
    if (request.arrival_ns && request.first_token_ns)
      found.ttft.push_back(ms_between(*request.arrival_ns, *request.first_token_ns));
    if (request.first_token_ns && request.finished_ns && request.num_generated > 1) {
      found.tpot.push_back(ms_between(*request.first_token_ns, *request.finished_ns) /
                           static_cast<double>(request.num_generated - 1));
    }
    if (!request.first_token_ns) continue;
    int64_t previous_ns = *request.first_token_ns;
    for (const uint32_t number : request.steps) {
      const int32_t at = index.find(number);
      if (at < 0) continue;
      const StepInfo& step = timeline.steps[static_cast<std::size_t>(at)];
      if (step.begin_ns < *request.first_token_ns) continue;
      found.itl.push_back(ms_between(previous_ns, step.end_ns));
      previous_ns = step.end_ns;
    }
  }
  return found;
}

Table::Cell percentile_cell(const std::vector<double>& values, double share) {
  if (values.empty()) return std::monostate{};
  return percentile(values, share);
}

struct Totals {
  int64_t prompt_tokens = 0, new_tokens = 0, finished = 0;
  int64_t records = 0, lost = 0, peak_rss_bytes = 0, threads = 0;
};

Totals run_totals(const ReportInput& input) {
  Totals sum;
  for (const RequestInfo& request : input.timeline.requests) {
    sum.prompt_tokens += request.num_prompt;
    sum.new_tokens += request.num_generated;
    sum.finished += request.finished_ns ? 1 : 0;
  }
  for (const RankCapture& rank : input.capture.ranks) {
    sum.peak_rss_bytes = std::max(sum.peak_rss_bytes, rank.peak_rss_bytes);
    sum.threads += rank.num_threads;
    for (const ThreadCapture& thread : rank.threads) {
      sum.records += static_cast<int64_t>(thread.records.size());
      sum.lost += static_cast<int64_t>(thread.num_lost);
    }
  }
  return sum;
}

}  // namespace

Table make_run_view(const ReportInput& input) {
  const CaptureInfo& info = input.capture.info;
  const Timeline& timeline = input.timeline;
  const Totals sum = run_totals(input);
  const Latencies latencies = find_latencies(timeline);
  const double wall_s = static_cast<double>(total(find_recorded(input))) / 1e9;
  const double aside_s = static_cast<double>(total(intersect(find_asides(timeline), find_recorded(input)))) / 1e9;
  int64_t step_tokens = 0, useful_tokens = 0;
  for (const StepInfo& step : timeline.steps) {
    step_tokens += step.num_tokens;
    useful_tokens += step.num_useful();
  }
  Table table{
      .id = "run",
      .title = "Run",
      .note =
          "TTFT counts from the arrival of a request, before tokenization; ITL between the ends of its steps; none counts "
          "when the program was busy with itself (aside). "
          "step_tokens are rows computed in steps that the capture holds; tokens_per_s leaves out the drafts that were wrong, "
          "and the time aside. "
          "Of kept steps of an archive wall_s is what was recorded, without what lies between them. "
          "counters: what was not counted, and why."};
  std::vector<Table::Cell> row;
  const auto add = [&](const char* name, Table::Cell cell, int decimals = 0) {
    table.columns.push_back({name, decimals});
    row.push_back(std::move(cell));
  };
  add("model", info.model.name);
  add("dtype", info.model.dtype);
  add("command", info.command);
  add("version", info.version);
  add("transport", info.transport);
  add("level", static_cast<int64_t>(info.level));
  add("ranks", static_cast<int64_t>(info.world_size));
  add("threads", sum.threads);
  add("wall_s", wall_s, 3);
  add("steps", static_cast<int64_t>(timeline.steps.size()));
  add("step_tokens", step_tokens);
  add("tokens_per_s", ratio_cell(static_cast<double>(useful_tokens), wall_s - aside_s), 1);
  add("requests", static_cast<int64_t>(timeline.requests.size()));
  add("finished_requests", sum.finished);
  add("prompt_tokens", sum.prompt_tokens);
  add("new_tokens", sum.new_tokens);
  add("ttft_p50_ms", percentile_cell(latencies.ttft, 0.5), 3);
  add("ttft_p90_ms", percentile_cell(latencies.ttft, 0.9), 3);
  add("ttft_p99_ms", percentile_cell(latencies.ttft, 0.99), 3);
  add("tpot_p50_ms", percentile_cell(latencies.tpot, 0.5), 3);
  add("tpot_p99_ms", percentile_cell(latencies.tpot, 0.99), 3);
  add("itl_p99_ms", percentile_cell(latencies.itl, 0.99), 3);
  add("peak_rss_bytes", sum.peak_rss_bytes);
  add("clock_bound_us", timeline.clock_bound_ns / 1e3, 3);
  add("causality_violations", timeline.num_causality_violations);
  add("unpaired_transfers", timeline.num_unpaired);
  add("records", sum.records);
  add("lost_records", sum.lost);
  const auto roof = [](double per_s) { return per_s > 0 ? Table::Cell(per_s / 1e9) : Table::Cell(); };
  add("read_roof_gb_per_s", roof(info.read_bytes_per_s), 2);
  add("compute_roof_gflop_per_s", roof(info.flops_per_s), 1);
  add("profiler_share", find_recording_cost(input).share, 5);
  const std::string uncounted = describe_uncounted(input.capture.ranks);
  add("counters", uncounted.empty() ? Table::Cell() : Table::Cell(uncounted));
  table.rows.push_back(std::move(row));
  return table;
}

}  // namespace ferry
