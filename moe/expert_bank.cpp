#include "moe/expert_bank.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace ferry {

ExpertBank::ExpertBank(std::span<const int64_t> num_local_experts, ExpertDims dims, WeightType type)
    : dims_(dims), type_(type) {
  for (const int64_t count : num_local_experts) {
    experts_.emplace_back(static_cast<std::size_t>(count));
    gate_up_.emplace_back(static_cast<std::size_t>(count), nullptr);
  }
  down_ = gate_up_;
}

ExpertBank::ExpertBank(int64_t num_layers, int64_t num_local_experts, ExpertDims dims, WeightType type)
    : ExpertBank(std::vector<int64_t>(static_cast<std::size_t>(num_layers), num_local_experts), dims, type) {}

void ExpertBank::set(int64_t layer, int64_t local_expert, std::shared_ptr<const PackedExpert> expert) {
  FERRY_CHECK(expert->gate_up->type().is_integer() == is_quantized() && expert->down->type().is_integer() == is_quantized());
  FERRY_CHECK_EQ(expert->gate_up->n(), 2 * dims_.intermediate_dim);
  FERRY_CHECK_EQ(expert->gate_up->k(), dims_.hidden_dim);
  FERRY_CHECK_EQ(expert->down->n(), dims_.hidden_dim);
  FERRY_CHECK_EQ(expert->down->k(), dims_.intermediate_dim);
  const auto l = static_cast<std::size_t>(layer), e = static_cast<std::size_t>(local_expert);
  gate_up_[l][e] = expert->gate_up.get();
  down_[l][e] = expert->down.get();
  experts_[l][e] = std::move(expert);
}

int64_t ExpertBank::num_local_experts() const {
  std::size_t most = 0;
  for (const auto& layer : gate_up_) most = std::max(most, layer.size());
  return static_cast<int64_t>(most);
}

}  // namespace ferry
