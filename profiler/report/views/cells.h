#pragma once

#include <cstdint>
#include <string>

#include "profiler/report/timeline/step_slices.h"
#include "profiler/report/views/table.h"

// What views put into cells.

namespace ferry {

/// Microseconds as a cell; with three decimals nothing is lost.
inline Table::Cell us_cell(int64_t ns) { return to_us(ns); }
/// `value`, an empty cell if it means nothing.
Table::Cell cell_if(bool has_meaning, double value);
/// Whether a rank computes on one.
bool has_device(const ReportInput& input);
/// `text` behind a note, where a rank has a device; else nothing.
std::string device_note(const ReportInput& input, const char* text);
/// a / b, an empty cell if b is 0.
Table::Cell ratio_cell(double a, double b);

}  // namespace ferry
