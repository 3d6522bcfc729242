#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/stream.h"
#include "kernels/vulkan/physical_device.h"
#include "kernels/weight_format.h"

// That a row's products do not depend on the rows beside it rests, where cooperative matrices multiply, on what Vulkan does not
// promise: that a device sums every row of a fragment in the same order, whatever kernel it is in. So it is tried at start.

namespace ferry::vulkan {

/// Products to compare.
struct RowProof {
  /// Rows of a product, shared out evenly to groups.
  struct Batch {
    int64_t num_rows = 0, num_groups = 1;
  };

  WeightType type;
  DType dtype = DType::kBF16;  // of the results, and of rows that are no codes
  int64_t n = 0, k = 0;
  std::vector<Batch> batches;  // a product each
};

/// Of a run in `dtype` on such a device: a product for every kernel, with tiles of every size, that plan_product() may choose
/// for such weights.
RowProof make_row_proof(const DeviceTraits& traits, WeightType type, DType dtype);

/// Whether random rows, in products with the stream's backend, have the bits that they have alone, wherever they stand and
/// whatever stands beside them: infinities too.
bool rows_stand_alone(Stream& stream, const RowProof& proof);

/// Weights that a run in `dtype` may multiply by matrices of such a device.
std::vector<WeightType> types_of_matrices(const DeviceTraits& traits, DType dtype);

/// Takes the matrices away from a device by which any of `types` are multiplied whose rows do not stand alone, by what
/// `stand_alone` says, and notes them in its info.
void drop_untrusted(PhysicalDevice& device, const std::vector<WeightType>& types,
                    const std::function<bool(WeightType)>& stand_alone);

}  // namespace ferry::vulkan
