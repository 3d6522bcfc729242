#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/types.h"

// What holds the multiply roofs (kernels/roof_probe.h): how many operations a unit can do in a cycle, how many cycles this core
// does in a second, and the same multiplications written in assembly, where no optimiser has a say.

namespace ferry {

/// Operations that the unit called `unit` (multiply_unit) does in a cycle of one core at most, whoever made the processor:
/// those of an instruction times the ports that can take it. 0 for an unknown unit.
double most_operations_per_cycle(std::string_view unit);

/// Does about `num_additions` additions of which each needs the result of the one before, so that each takes a cycle. Returns
/// how many.
int64_t add_in_chain(int64_t num_additions);

/// Loops `rounds` times over the unit's multiply-adds in registers and returns the number of operations done; 0 for "scalar",
/// which has no second probe. Call only where the processor has the unit.
double multiply_in_assembly(std::string_view unit, int64_t rounds);

/// Of one thread.
struct MultiplyRates {
  double cycles_per_s = 0;
  double probe_per_s = 0;     // operations, multiply_in_registers
  double assembly_per_s = 0;  // operations, multiply_in_assembly
};
/// What one thread reaches, the best of `num_tries` tries. They take turns, so that all see the same clock of the core, and the
/// two probes take turns at who is first: tiles slow the clock down, and whoever comes second has less of it. Where the rates
/// do not agree, tries begin anew, up to twenty times, since a core may have become slower between the best tries of the two:
/// an impossible rate does not become possible by it.
MultiplyRates measure_multiply_rates(DType dtype, std::string_view matmul, int num_tries);

/// How far a measured rate may lie above what bounds it: clocks of cores move between tries.
inline constexpr double kRateTolerance = 1.10;

/// Whether the probe's rate is possible: within `tolerance` times the bound by cycles, and times the second probe's rate if
/// there is one.
bool is_possible(const MultiplyRates& rates, std::string_view unit, double tolerance = kRateTolerance);

}  // namespace ferry
