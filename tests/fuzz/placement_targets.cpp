#include "moe/placement/load_file.h"
#include "runtime/base/check.h"
#include "tests/fuzz/targets.h"

// Loads of experts, which an operator hands from one run to the next or takes from another tool.

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

}  // namespace ferry::fuzz
