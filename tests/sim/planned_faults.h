#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/faulty/faulty_network.h"
#include "runtime/fault/fault_plan.h"

namespace ferry::sim {

/// What --fault asks for.
struct FaultSpec {
  std::vector<PlannedFault> faults;
  double drop_rate = 0;
};

/// The product's --fault, and drop:P% besides: every message is lost with a probability of P in a hundred; over links, which
/// lose no single message, the link breaks. Throws Error{kInvalidArgument} that names the piece and what is allowed.
FaultSpec parse_fault_spec(const std::string& text);

/// Lets them happen in virtual time: seconds count from the start of the job, ranks are its processes, and a step's faults come
/// before the coordinator begins it.
class PlannedFaults {
 public:
  /// Those that are due come at once. Both outlive this and the run.
  PlannedFaults(FaultyNetwork& network, VirtualTime& time, std::vector<PlannedFault> faults);

  void begin_step(int64_t step);

 private:
  void happen(const PlannedFault& fault);

  FaultyNetwork& network_;
  std::vector<PlannedFault> by_step_;  // that are still to come
};

}  // namespace ferry::sim
