#include "runtime/plan/curve.h"

#include <algorithm>

namespace ferry {

double Curve::at(double size) const {
  if (points.empty()) return 0;
  if (size <= points.front().size || points.size() == 1) return points.front().seconds;
  const auto above = std::find_if(points.begin() + 1, points.end() - 1, [&](const Point& p) { return p.size >= size; });
  const Point a = *(above - 1), b = *above;
  if (size > b.size && b.seconds < a.seconds) return b.seconds;
  return a.seconds + (b.seconds - a.seconds) * (size - a.size) / (b.size - a.size);
}

Curve Curve::times(double factor) const {
  Curve scaled = *this;
  for (Point& p : scaled.points) p.seconds *= factor;
  return scaled;
}

}  // namespace ferry
