#include "profiler/report/views/cells.h"

#include <algorithm>

namespace ferry {

bool has_device(const ReportInput& input) {
  return std::ranges::any_of(input.capture.ranks, [](const RankCapture& rank) { return !rank.device.name.empty(); });
}

std::string device_note(const ReportInput& input, const char* text) { return has_device(input) ? std::string(" ") + text : ""; }

Table::Cell cell_if(bool has_meaning, double value) {
  Table::Cell cell;
  if (has_meaning) cell = value;
  return cell;
}

Table::Cell ratio_cell(double a, double b) { return cell_if(b != 0, b != 0 ? a / b : 0); }

}  // namespace ferry
