#pragma once

#include <vector>

namespace ferry {

/// Seconds over rows, as they were measured: straight lines between the points, the last one goes on, before the first it is
/// level.
struct Curve {
  struct Point {
    double rows = 0;  // ascending
    double seconds = 0;
  };
  std::vector<Point> points;  // empty: 0 everywhere

  double at(double rows) const;
  /// All seconds times `factor`.
  Curve times(double factor) const;
};

}  // namespace ferry
