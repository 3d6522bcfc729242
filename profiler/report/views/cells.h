#pragma once

#include <cstdint>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/table.h"

// What views put into cells.

namespace ferry {

/// Microseconds as a cell; with three decimals nothing is lost.
inline Table::Cell us_cell(int64_t ns) { return to_us(ns); }
/// `value`, an empty cell if it means nothing.
Table::Cell cell_if(bool has_meaning, double value);
/// a / b, an empty cell if b is 0.
Table::Cell ratio_cell(double a, double b);

}  // namespace ferry
