#pragma once

#include <array>
#include <vector>

#include "kernels/matmul.h"
#include "moe/grouped_ffn.h"
#include "moe/permutation.h"
#include "moe/token_dispatcher.h"

namespace ferry {

/// All experts in this process: the embedded default, and the baseline that every number of ranks must equal.
class LocalTokenDispatcher final : public TokenDispatcher {
 public:
  struct Options {
    int64_t max_tokens = 0;  // rows of the largest step
    int64_t top_k = 0;
    DType dtype = DType::kF32;
  };
  /// `bank` holds every expert, in id order, and outlives this.
  LocalTokenDispatcher(const ExpertBank& bank, Stream& stream, const Options& options);

  void begin_step(int64_t) override {}
  DispatchHandle dispatch(const DispatchArgs& args) override;
  void combine(DispatchHandle handle, MatrixView out) override;
  void keep_alive() override {}
  void shut_down() override {}
  DType row_dtype() const override { return row_dtype_; }
  const ExpertPlacement& placement() const override { return placement_; }
  const ExpertLoad& expert_load() const override { return load_; }

 private:
  struct InFlight {
    bool open = false;
    DispatchPlan plan;
    Matrix rows;  // [max_tokens * top_k, hidden_dim] results, expert-major
    Address<const float> slot_weights;
    int64_t top_k = 0;
  };

  Stream& stream_;
  DType row_dtype_;
  ExpertPlacement placement_;
  ExpertLoad load_;
  const ExpertBank& bank_;
  const std::vector<ExpertOwner> owners_;  // [num_experts] this rank
  GroupedFfn ffn_;
  std::array<InFlight, kMaxInFlight> in_flight_;
  std::vector<const std::byte*> slot_rows_;  // [max_tokens * top_k]
};

}  // namespace ferry
