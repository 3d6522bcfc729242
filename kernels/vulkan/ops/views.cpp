#include "kernels/vulkan/ops/views.h"

#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

constexpr int64_t kMaxGroupsOfAxis = 65535;  // Vulkan's least maxComputeWorkGroupCount

}  // namespace

Grid grid_of_rows(int64_t rows) {
  if (rows <= kMaxGroupsOfAxis) return {static_cast<uint32_t>(rows), 1, 1};
  const int64_t folds = (rows + kMaxGroupsOfAxis - 1) / kMaxGroupsOfAxis;
  FERRY_CHECK_LE(folds, kMaxGroupsOfAxis);
  return {static_cast<uint32_t>((rows + folds - 1) / folds), static_cast<uint32_t>(folds), 1};
}

Grid grid_of_elements(int64_t count, uint32_t invocations) { return grid_of_rows((count + invocations - 1) / invocations); }

}  // namespace ferry::vulkan
