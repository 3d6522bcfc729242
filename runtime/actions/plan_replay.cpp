#include "runtime/actions/plan_replay.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "runtime/actions/capture_routing.h"
#include "runtime/actions/command_change.h"

namespace ferry {
namespace {

std::vector<PlanHost> with_at_least(std::vector<PlanHost> hosts, std::size_t count) {
  while (hosts.size() < count) hosts.push_back(hosts.back());
  return hosts;
}

}  // namespace

CaptureReplay::CaptureReplay(const ReportInput& captured)
    : input(captured),
      steps(replay_steps(captured)),
      calls(find_expert_calls(captured)),
      groups(find_step_groups(captured, steps)),
      routing(routing_of(captured.capture)),
      costs(routing.steps.empty() ? std::nullopt : find_replay_costs(captured, steps, calls, routing.shape)) {
  double sample_s = 0, once_s = 0, tokens = 0, decode_steps = 0;
  for (const ReplayedStep& step : steps) {
    steps_s_ += step.parts.sum();
    if (step.prefill_rows > 0) continue;
    sample_s += step.parts.sample - step.once.sample, once_s += step.once.sample, decode_steps += 1;
    tokens += static_cast<double>(input.timeline.steps[step.index].num_useful());
  }
  if (tokens > 0) token_s_ = sample_s / tokens;
  if (decode_steps > 0) publish_s_ = once_s / decode_steps;
}

std::string CaptureReplay::setting(const std::string& option, const std::string& otherwise) const {
  const CaptureInfo& info = input.capture.info;
  const auto found = info.settings.find(option);
  if (found != info.settings.end()) return found->second;
  return option_in(info.command, option).value_or(otherwise);
}

int64_t CaptureReplay::setting_number(const std::string& option, int64_t otherwise) const {
  const std::string text = setting(option);
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc{} && end != text.data() ? value : otherwise;
}

PlanReplay::PlanReplay(const CaptureReplay& replay) : PlanReplay(replay, replay.costs->hosts) {}

PlanReplay::PlanReplay(const CaptureReplay& replay, std::vector<PlanHost> hosts)
    : replay_(replay),
      hosts_(with_at_least(std::move(hosts), 1)),
      rows_(replay.routing),
      model_(replay.costs->model, hosts_, rows_) {}

double PlanReplay::seconds(const StepGroup& group, PlanCase c) {
  double sum = times(group, std::move(c)).sum();
  for (const std::size_t i : group.steps) sum += replay_.steps[i].parts.draft + replay_.steps[i].parts.sample;
  return sum;
}

StepTimes PlanReplay::times(const StepGroup& group, PlanCase c) {
  std::map<int64_t, int64_t> counts;  // steps by rows; sizes within a few per cent of each other count as one
  for (const std::size_t i : group.steps) {
    const double rows = replay_.steps[i].rows();
    const double grain = std::max(1.0, std::exp2(std::floor(std::log2(rows)) - 4));
    ++counts[std::llround(std::llround(rows / grain) * grain)];
  }
  StepTimes sum;
  for (const auto& [rows, count] : counts) {
    c.batch = group.is_decode ? rows : 1;
    c.prompt = group.is_decode ? 1 : rows;
    c.prefill_chunk = c.prompt;
    c.context = 1;
    const StepTimes one = group.is_decode ? model_.decode(c) : model_.prefill(c);
    const auto times = static_cast<double>(count);
    sum.coordinator += times * one.coordinator, sum.experts += times * one.experts;
    sum.transport += times * one.transport, sum.imbalance += times * one.imbalance;
  }
  return sum;
}

StepTimes PlanReplay::decode_times(PlanCase c, int64_t batch) {
  c.batch = std::max<int64_t>(1, batch);
  c.prompt = c.prefill_chunk = c.context = 1;
  return model_.decode(c);
}

double PlanReplay::decode_seconds(PlanCase c, int64_t batch) { return decode_times(std::move(c), batch).sum(); }

double PlanReplay::prefill_seconds(PlanCase c, int64_t rows) {
  c.batch = c.context = 1;
  c.prompt = c.prefill_chunk = std::max<int64_t>(1, rows);
  return model_.prefill(c).sum();
}

double PlanReplay::captured_seconds(const StepGroup& group) {
  PlanCase c = replay_.costs->captured;
  c.given = &replay_.costs->placement;
  return seconds(group, c);
}

}  // namespace ferry
