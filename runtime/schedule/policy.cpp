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

}  // namespace ferry
