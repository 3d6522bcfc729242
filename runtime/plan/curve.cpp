#include "runtime/plan/curve.h"

#include <algorithm>

namespace ferry {

double Curve::at(double rows) const {
  if (points.empty()) return 0;
  if (rows <= points.front().rows || points.size() == 1) return points.front().seconds;
  const auto above = std::find_if(points.begin() + 1, points.end() - 1, [&](const Point& p) { return p.rows >= rows; });
  const Point a = *(above - 1), b = *above;
  return std::max(0.0, a.seconds + (b.seconds - a.seconds) * (rows - a.rows) / (b.rows - a.rows));
}

Curve Curve::times(double factor) const {
  Curve scaled = *this;
  for (Point& p : scaled.points) p.seconds *= factor;
  return scaled;
}

}  // namespace ferry
