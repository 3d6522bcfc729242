#include "profiler/report/views/cells.h"

namespace ferry {

Table::Cell cell_if(bool has_meaning, double value) {
  Table::Cell cell;
  if (has_meaning) cell = value;
  return cell;
}

Table::Cell ratio_cell(double a, double b) { return cell_if(b != 0, b != 0 ? a / b : 0); }

}  // namespace ferry
