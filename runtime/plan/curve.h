#pragma once

#include <vector>

namespace ferry {

/// Seconds over rows or bytes, as they were measured: straight lines between the points, the last one goes on unless it falls,
/// before the first it is level.
struct Curve {
  struct Point {
    double size = 0;  // rows or bytes, ascending
    double seconds = 0;
  };
  std::vector<Point> points;  // empty: 0 everywhere

  double at(double size) const;
  /// All seconds times `factor`.
  Curve times(double factor) const;
};

}  // namespace ferry
