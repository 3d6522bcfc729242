#include <algorithm>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

/// How a stage of a request divides, in ns: its own steps (which divide further), steps that ran without it, and no step.
struct StageParts {
  int64_t computing = 0, exposed = 0, free = 0, stall = 0, between = 0;
};

/// Divides windows by the coordinator's steps, whose lengths are added up once.
class StageDivider {
 public:
  explicit StageDivider(const ReportInput& input) : input_(input), index_(input.timeline) {
    lengths_.push_back(0);
    for (const StepInfo& step : input.timeline.steps) {
      parts_.push_back(break_down(input.activity.at(0), {step.begin_ns, step.end_ns}));
      lengths_.push_back(lengths_.back() + step.end_ns - step.begin_ns);
    }
  }

  StageParts divide(const RequestInfo& request, Interval window) const {
    StageParts parts;
    int64_t own_ns = 0;
    for (const uint32_t number : request.steps) {
      const int32_t at = index_.find(number);
      if (at < 0) continue;
      const StepInfo& step = input_.timeline.steps[static_cast<std::size_t>(at)];
      const Interval cut{std::max(step.begin_ns, window.begin), std::min(step.end_ns, window.end)};
      if (cut.end <= cut.begin) continue;
      const bool is_whole = cut == Interval{step.begin_ns, step.end_ns};
      const Breakdown b = is_whole ? parts_[static_cast<std::size_t>(at)] : break_down(input_.activity[0], cut);
      parts.computing += b.computing;
      parts.exposed += b.exposed;
      parts.free += b.free;
      own_ns += b.window;
    }
    const int64_t stepping_ns = steps_before(window.end) - steps_before(window.begin);
    parts.stall = stepping_ns - own_ns;
    parts.between = window.end - window.begin - stepping_ns;
    return parts;
  }

 private:
  /// Time in steps before `at_ns`.
  int64_t steps_before(int64_t at_ns) const {
    const std::vector<StepInfo>& steps = input_.timeline.steps;
    const auto next = std::partition_point(steps.begin(), steps.end(), [&](const StepInfo& s) { return s.end_ns <= at_ns; });
    const auto before = static_cast<std::size_t>(next - steps.begin());
    return lengths_[before] + (next == steps.end() ? 0 : std::max<int64_t>(at_ns - next->begin_ns, 0));
  }

  const ReportInput& input_;
  const StepIndex index_;
  std::vector<Breakdown> parts_;  // of each step, on the coordinator
  std::vector<int64_t> lengths_;  // of the steps before each
};

Table::Cell span_cell(std::optional<int64_t> begin_ns, std::optional<int64_t> end_ns) {
  return cell_if(begin_ns && end_ns, to_us(end_ns.value_or(0) - begin_ns.value_or(0)));
}

Table::Cell moment_cell(std::optional<int64_t> at_ns) { return cell_if(at_ns.has_value(), to_us(at_ns.value_or(0))); }

void append_stage(std::vector<Table::Cell>& row, const StageDivider& divider, const RequestInfo& request,
                  std::optional<int64_t> begin_ns, std::optional<int64_t> end_ns) {
  if (!begin_ns || !end_ns || *end_ns < *begin_ns) {
    row.resize(row.size() + 5);
    return;
  }
  const StageParts parts = divider.divide(request, {*begin_ns, *end_ns});
  for (const int64_t ns : {parts.computing, parts.exposed, parts.free, parts.stall, parts.between}) row.push_back(us_cell(ns));
}

}  // namespace

Table make_request_view(const ReportInput& input) {
  Table table{
      .id = "request",
      .title = "Requests",
      .note =
          "TTFT = tokenize + queue + the prefill columns, from arrival (before tokenization); total = TTFT + the decode "
          "columns. computing, exposed, free: the coordinator's time in the request's own steps; stall: steps that "
          "ran without it, preempted_us of them because it had to give its KV blocks to older requests; between: no step ran. "
          "Empty: outside the capture, which requests that began before "
          "it reach into.",
      .columns = {{"request"},
                  {"began"},
                  {"prompt_tokens"},
                  {"new_tokens"},
                  {"own_steps"},
                  {"arrival_us", 3},
                  {"tokenize_us", 3},
                  {"queue_us", 3}}};
  for (const char* stage : {"prefill", "decode"}) {
    for (const char* part : {"computing", "exposed", "free", "stall", "between"})
      table.columns.push_back({std::string(stage) + "_" + part + "_us", 3});
  }
  for (const char* name : {"ttft_us", "tpot_us", "total_us"}) table.columns.push_back({name, 3});
  table.columns.insert(table.columns.end(),
                       {{"preemptions"}, {"first_preempted_us", 3}, {"preempted_us", 3}, {"finish_reason"}});

  const StageDivider divider(input);
  for (const RequestInfo& request : input.timeline.requests) {
    Table::Cell num_prompt;
    if (request.num_prompt > 0) num_prompt = request.num_prompt;
    std::vector<Table::Cell> row = {static_cast<int64_t>(request.request),
                                    request.arrival_ns ? "inside" : "before",
                                    num_prompt,
                                    request.num_generated,
                                    static_cast<int64_t>(request.steps.size()),
                                    moment_cell(request.arrival_ns),
                                    span_cell(request.arrival_ns, request.queued_ns)};
    // A request that ended in the queue was never scheduled; among kept steps of an archive, nobody knows whether it was.
    const bool may_end_queued = input.capture.info.selection.empty() && !request.first_scheduled_ns;
    const auto queue_end_ns = may_end_queued ? request.finished_ns : request.first_scheduled_ns;
    row.push_back(span_cell(request.queued_ns, queue_end_ns));
    const auto prefill_end_ns = request.first_token_ns ? request.first_token_ns : request.finished_ns;
    append_stage(row, divider, request, request.first_scheduled_ns, prefill_end_ns);
    append_stage(row, divider, request, request.first_token_ns, request.finished_ns);
    row.push_back(span_cell(request.arrival_ns, request.first_token_ns));
    Table::Cell tpot;
    if (request.first_token_ns && request.finished_ns && request.num_generated > 1)
      tpot = to_us(*request.finished_ns - *request.first_token_ns) / static_cast<double>(request.num_generated - 1);
    row.push_back(tpot);
    row.push_back(span_cell(request.arrival_ns, request.finished_ns));
    row.emplace_back(request.num_preemptions);
    row.push_back(moment_cell(request.first_preempted_ns));
    row.push_back(us_cell(request.preempted_ns));
    row.emplace_back(request.finish_reason);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace ferry
