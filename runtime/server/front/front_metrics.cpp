#include "runtime/server/front/front_metrics.h"

#include <string>

#include "runtime/server/metrics/metrics_text.h"

namespace ferry {
namespace {

using ReportRow = PoolReport::Coordinator;

const char* choice_reason_name(ChoiceReason reason) {
  switch (reason) {
    case ChoiceReason::kSession: return "session";
    case ChoiceReason::kPrefix: return "prefix";
    case ChoiceReason::kUser: return "user";
    case ChoiceReason::kLoad: return "load";
    case ChoiceReason::kOverflow: return "overflow";
  }
  return "";
}

struct CoordinatorMetric {
  const char* name;
  MetricKind kind;
  const char* help;
  double (*value)(const ReportRow& coordinator);
};

constexpr CoordinatorMetric kCoordinatorMetrics[] = {
    {"ferry:front_coordinator_up", MetricKind::kGauge, "1 while the coordinator takes calls, else 0.",
     [](const ReportRow& each) { return each.state == CoordinatorState::kServing ? 1.0 : 0.0; }},
    {"ferry:front_open_requests", MetricKind::kGauge, "Calls that the coordinator is answering for this front.",
     [](const ReportRow& each) { return static_cast<double>(each.num_open); }},
    {"ferry:front_remembered_pieces", MetricKind::kGauge, "Pieces of prompts that the coordinator is taken to have computed.",
     [](const ReportRow& each) { return static_cast<double>(each.remembered_pieces); }},
    {"ferry:front_broken_answers_total", MetricKind::kCounter, "Answers of the coordinator that ended in their middle.",
     [](const ReportRow& each) { return static_cast<double>(each.num_broken); }},
    {"ferry:front_coordinator_failures_total", MetricKind::kCounter, "Times that the coordinator was found to be down.",
     [](const ReportRow& each) { return static_cast<double>(each.num_failures); }},
};

void write_calls(const PoolReport& report, MetricsText& text) {
  text.begin("ferry:front_requests_total", MetricKind::kCounter, "Calls that were given to the coordinator, by port.");
  for (const ReportRow& each : report.coordinators) {
    for (const FrontPort port : {FrontPort::kHttp, FrontPort::kGrpc}) {
      text.add(static_cast<double>(each.num_calls[static_cast<std::size_t>(port)]),
               {{"coordinator", each.address.http}, {"port", front_port_name(port)}});
    }
  }
}

void write_choices(const PoolReport& report, MetricsText& text) {
  text.begin("ferry:front_choices_total", MetricKind::kCounter, "Calls for tokens by why they went where they went.");
  for (int i = 0; i < kNumChoiceReasons; ++i) {
    text.add(static_cast<double>(report.choices[static_cast<std::size_t>(i)]),
             {{"by", choice_reason_name(static_cast<ChoiceReason>(i))}});
  }
  const auto add = [&](const char* name, MetricKind kind, const char* help, int64_t value) {
    text.begin(name, kind, help);
    text.add(static_cast<double>(value));
  };
  add("ferry:front_retries_total", MetricKind::kCounter,
      "Calls that were given to another coordinator after one had failed them.", report.num_retries);
  add("ferry:front_unserved_total", MetricKind::kCounter, "Times that there was no coordinator for a call.",
      report.num_unserved);
  add("ferry:front_sessions", MetricKind::kGauge, "Sessions whose coordinator is remembered.", report.num_sessions);
}

}  // namespace

void write_front_metrics(const PoolReport& report, MetricsText& text) {
  for (const CoordinatorMetric& metric : kCoordinatorMetrics) {
    text.begin(metric.name, metric.kind, metric.help);
    for (const ReportRow& each : report.coordinators) text.add(metric.value(each), {{"coordinator", each.address.http}});
  }
  write_calls(report, text);
  write_choices(report, text);
}

}  // namespace ferry
