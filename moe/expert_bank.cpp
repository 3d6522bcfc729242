#include "moe/expert_bank.h"

#include <utility>

#include "runtime/base/check.h"

namespace ferry {

ExpertBank::ExpertBank(int64_t num_layers, int64_t num_local_experts, ExpertDims dims, WeightType type)
    : num_local_experts_(num_local_experts),
      dims_(dims),
      type_(type),
      owned_(static_cast<std::size_t>(2 * num_layers * num_local_experts)) {
  const std::vector<const PackedMatrix*> empty(static_cast<std::size_t>(num_local_experts), nullptr);
  gate_up_.assign(static_cast<std::size_t>(num_layers), empty);
  down_ = gate_up_;
}

void ExpertBank::set(int64_t layer, int64_t local_expert, std::unique_ptr<PackedMatrix> gate_up,
                     std::unique_ptr<PackedMatrix> down) {
  FERRY_CHECK(gate_up->type().is_integer() == is_quantized() && down->type().is_integer() == is_quantized());
  FERRY_CHECK_EQ(gate_up->n(), 2 * dims_.intermediate_dim);
  FERRY_CHECK_EQ(gate_up->k(), dims_.hidden_dim);
  FERRY_CHECK_EQ(down->n(), dims_.hidden_dim);
  FERRY_CHECK_EQ(down->k(), dims_.intermediate_dim);
  const auto l = static_cast<std::size_t>(layer), e = static_cast<std::size_t>(local_expert);
  const std::size_t slot = 2 * (l * static_cast<std::size_t>(num_local_experts_) + e);
  gate_up_[l][e] = gate_up.get();
  down_[l][e] = down.get();
  owned_[slot] = std::move(gate_up);
  owned_[slot + 1] = std::move(down);
}

}  // namespace ferry
