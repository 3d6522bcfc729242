#pragma once

#include <cstdint>
#include <span>

namespace ferry {

/// Stands beside the router of every mixture of experts of a step: sees what it chose and may choose otherwise. Called by the
/// thread that steps, layer by layer; of a layer the rows may come in two calls, in order.
class RoutingHook {
 public:
  virtual ~RoutingHook() = default;

  /// `ids` [rows, top_k]: what the router chose in `layer` (the model's number) for the step's rows from `first_row` on. True
  /// if it wrote others there, which then hold; the weights stay, slot by slot, those of the router's own choice.
  virtual bool routed(int64_t layer, int64_t first_row, std::span<int32_t> ids) = 0;
};

}  // namespace ferry
