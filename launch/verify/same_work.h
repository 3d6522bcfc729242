#pragma once

#include <string>
#include <vector>

#include "profiler/report/timeline/report_input.h"

namespace ferry {

/// Refuses captures whose times mean different things: of other models, of other commands, of prompts of other lengths. Throws
/// Error{kInvalidArgument}, a line that names what differs. Returns what makes a comparison weaker, a line each: other
/// versions, hosts, lengths of answers, machines that are not as fast, workers that were late, lost or new.
std::vector<std::string> check_same_work(const ReportInput& before, const ReportInput& after);

/// By how much the machine itself was another one in the second capture, by what runs measured of it: the most that a roof
/// (bytes read, operations, both a second) was lower or higher, as a share; 0 up to a tenth, and where it is not
/// known. Operations count where both runs multiply alike: what --quantize and --dtype change is not the machine.
struct MachineChange {
  double slower = 0, faster = 0;

  /// Whether it alone may have made a difference of that direction: a share, above 0 where it is better.
  bool may_explain(double share) const { return share < 0 ? slower > 0 : share > 0 && faster > 0; }
};
MachineChange find_machine_change(const CaptureInfo& before, const CaptureInfo& after);

/// A line for each of the two whose steps were kept for their lengths.
std::vector<std::string> selection_warnings(const CaptureInfo& before, const CaptureInfo& after);

}  // namespace ferry
