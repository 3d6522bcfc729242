#include "runtime/schedule/policy.h"

namespace ferry {

const char* scheduling_policy_name(SchedulingPolicy policy) {
  switch (policy) {
    case SchedulingPolicy::kFcfs: return "fcfs";
    case SchedulingPolicy::kPriority: return "priority";
    case SchedulingPolicy::kFair: return "fair";
  }
  return "";
}

SchedulingPolicy policy_for(const PolicyOptions& options, std::size_t num_keys) {
  return !options.is_given && num_keys > 1 ? SchedulingPolicy::kFair : options.policy;
}

}  // namespace ferry
