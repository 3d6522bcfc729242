#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "profiler/report/incidents/incidents.h"
#include "profiler/report/timeline/report_input.h"

// What incidents cost. A step is compared with those like it (the same phase or section, as many tokens and sequences but for a
// tenth) outside of any incident: those just before it, or, where these are too few, the nearest ones. Sums of time are set
// beside means, since a sum has its share of steps that are long by chance; what a step usually takes are medians.

namespace ferry {

/// What the coordinator did in struck steps that it does not do otherwise.
enum class CostPart : uint8_t {
  kWaited,     // for a worker that then was doubted or lost
  kResent,     // for others, which were asked for the same rows
  kRead,       // experts were read that it had to compute itself
  kComputed,   // and computed
  kPlacement,  // it saw to a placement: where experts are to be, and the switch
};
inline constexpr std::size_t kNumCostParts = 5;

/// Steps of one sort, beside those like them outside of any incident.
struct Slowdown {
  int64_t steps = 0, compared = 0;  // of them, those with enough steps like them
  double more_ns = 0;               // that the compared ones took beyond the others' means, all together
  double usual_ns = 0;              // of the compared ones, by the others' medians
  double usually_more_ns = 0;       // by their own medians beyond that; less than 0: they were faster
  bool is_told = false;             // chance alone would hardly have that

  double share() const { return usual_ns > 0 ? usually_more_ns / usual_ns : 0; }
};

struct IncidentCost {
  // Struck steps: in them a worker was doubted or lost, rows were answered by others than they were meant for, experts were
  // read here, or a placement was seen to.
  int64_t struck = 0, struck_compared = 0;
  double struck_ns = 0;                           // beyond the means of those like them, summed up
  double struck_noise_ns = 0;                     // by which as many steps differ from that anyway: a standard deviation
  std::array<int64_t, kNumCostParts> parts_ns{};  // of the compared ones; they may have been hidden behind other waits
  Slowdown meanwhile;                             // the incident's other steps
  Slowdown after;                                 // steps between it and the next one, beside those before it
  double noise_ns = 0;                            // of total_ns(), as above

  int64_t rows_by_workers = 0, rows_by_coordinator = 0;
  int64_t experts_read = 0;   // by the coordinator
  int64_t experts_moved = 0;  // read by workers, of placements that came to be
  bool has_switched = false;  // the placement changed

  int64_t part(CostPart part) const { return parts_ns[static_cast<std::size_t>(part)]; }
  /// Beyond what such steps take, all of them together; of steps that can be compared.
  double total_ns() const { return struck_ns + meanwhile.more_ns; }
  /// Of the struck steps' time what the parts do not say; less than 0 where a part was hidden.
  double rest_ns() const;
};

/// [incidents.size()].
std::vector<IncidentCost> find_incident_costs(const ReportInput& input, const WorkerHistory& history,
                                              const std::vector<Incident>& incidents);

}  // namespace ferry
