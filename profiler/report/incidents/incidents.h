#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/report/incidents/worker_history.h"

namespace ferry {

/// Why steps may have taken longer, the worst first.
enum class IncidentCause : uint8_t {
  kLost,    // a worker was lost: since it was last heard of, until others have its experts
  kLate,    // it was suspected: since it was last heard of, until it answers again
  kLeft,    // it wanted to go: until others have its experts
  kJoined,  // it came: until it has experts
  kMoved,   // experts moved for balance's sake, or the rest of a change whose reason lies outside of the capture
};

/// A stretch of time in which workers come, go or are in doubt, or experts move. What happens at once, or in the same step, is
/// one: what a step lost cannot be told apart.
struct Incident {
  struct Part {
    IncidentCause cause;
    int32_t rank;  // -1 of kMoved
    friend bool operator==(const Part&, const Part&) = default;
  };
  Interval when;
  std::vector<Part> parts;                    // the worst first, none twice
  std::size_t first_step = 0, last_step = 0;  // [first, last) of timeline.steps that it touches
  bool is_open = false;                       // it is not over when the capture ends
};

/// "rank 2 was late and suspected".
std::string what_happened(const Incident::Part& part);

/// By time. None where no worker comes to stand otherwise and no expert moves; one that only takes its seat is none.
std::vector<Incident> find_incidents(const Timeline& timeline, const WorkerHistory& history);

}  // namespace ferry
