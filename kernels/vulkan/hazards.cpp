#include "kernels/vulkan/hazards.h"

#include <algorithm>

namespace ferry::vulkan {
namespace {

bool any_meets(const std::vector<Range>& ranges, const std::vector<Range>& others) {
  return std::any_of(ranges.begin(), ranges.end(), [&](Range range) {
    return std::any_of(others.begin(), others.end(), [&](Range other) { return range.meets(other); });
  });
}

void append(const std::vector<Range>& from, std::vector<Range>& to) { to.insert(to.end(), from.begin(), from.end()); }

}  // namespace

Range Range::of(ConstMatrixView rows) {
  if (rows.rows == 0 || rows.cols == 0) return {};
  const auto begin = reinterpret_cast<uint64_t>(rows.data);
  const int64_t elements = (rows.rows - 1) * rows.row_stride + rows.cols;
  return {begin, begin + static_cast<uint64_t>(elements * dtype_bytes(rows.dtype))};
}

bool Hazards::meets(const Access& next) const {
  return any_meets(next.reads, touched_.writes) || any_meets(next.writes, touched_.writes) ||
         any_meets(next.writes, touched_.reads);
}

void Hazards::add(const Access& next) {
  append(next.reads, touched_.reads);
  append(next.writes, touched_.writes);
}

}  // namespace ferry::vulkan
