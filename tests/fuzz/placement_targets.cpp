#include <cmath>
#include <set>

#include "launch/compare/bench_result.h"
#include "moe/placement/load_file.h"
#include "moe/routing/routing_rows.h"
#include "moe/routing/routing_summary.h"
#include "runtime/base/check.h"
#include "runtime/plan/hosts_file.h"
#include "tests/fuzz/targets.h"

// Loads of experts, routing, machines and results of benchmarks, which an operator hands from one run to the next or takes from
// another tool.

namespace ferry::fuzz {

void read_loads(Input input) {
  const ExpertLoads loads = read_expert_loads(text_of(input), "input");
  FERRY_CHECK_EQ(static_cast<int64_t>(loads.rows.size()), loads.num_layers * loads.num_experts);
  FERRY_CHECK_EQ(loads.touched.size(), loads.rows.size());
  const std::string text = write_expert_loads(loads);
  FERRY_CHECK_EQ(write_expert_loads(read_expert_loads(text, "written")), text);
}

void read_record(Input input) {
  const LoadRecord record = read_load_record(text_of(input), "input");
  FERRY_CHECK_EQ(static_cast<int64_t>(record.rows.size()), record.num_windows * record.num_layers * record.num_experts);
  FERRY_CHECK(read_load_record(write_load_record(record), "written").rows == record.rows);
}

void read_routing(Input input) {
  const RoutingTrace trace = decode_routing_trace(std::as_bytes(input), "input");
  const std::vector<std::byte> bytes = encode_routing_trace(trace);
  FERRY_CHECK(decode_routing_trace(bytes, "written").ids == trace.ids);
  FERRY_CHECK(!routing_text(trace).empty());
  if (trace.steps.empty()) return;
  const RoutingRows rows(trace);
  for (const RoutingPhase phase : {RoutingPhase::kPrefill, RoutingPhase::kDecode}) {
    const RoutingRows::Row row = rows.row(phase, 5, 1000);
    FERRY_CHECK(row.row < row.step->num_rows);
  }
}

void read_machines(Input input) {
  const std::vector<HostEntry> hosts = read_hosts(text_of(input), "input");
  const std::string text = write_hosts(hosts);
  FERRY_CHECK_EQ(write_hosts(read_hosts(text, "written")), text);
}

void read_bench(Input input) {
  const BenchResult result = read_bench_result(text_of(input), "input");
  std::set<std::string> names;
  for (const ResultRow& row : result.rows) {
    FERRY_CHECK(!row.tokens_per_s.empty() && names.insert(row.name).second);
    for (const double rate : row.tokens_per_s) FERRY_CHECK(std::isfinite(rate) && rate > 0);
  }
}

}  // namespace ferry::fuzz
