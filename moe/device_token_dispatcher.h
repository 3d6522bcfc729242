#pragma once

#include <array>
#include <memory>
#include <vector>

#include "kernels/host_rows.h"
#include "moe/expert_bank.h"
#include "moe/local_token_dispatcher.h"

namespace ferry {

/// All experts in this process, on the device that routes: which rows go where is worked out there too, and the host neither
/// looks at what a router chose nor waits for it. Rows are gathered while they are multiplied, not copied before. The products
/// and their order are those of the local dispatcher, and so are the bits.
class DeviceTokenDispatcher final : public TokenDispatcher {
 public:
  using Options = LocalTokenDispatcher::Options;
  /// `bank` holds every expert, in id order, in the stream's memory; both outlive this.
  DeviceTokenDispatcher(const ExpertBank& bank, Stream& stream, const Options& options);

  void begin_step(int64_t) override {}
  DispatchHandle dispatch(const DispatchArgs& args) override;
  void combine(DispatchHandle handle, MatrixView out) override;
  std::optional<CombineArgs> take_combine(DispatchHandle& handle, MatrixView out) override;
  /// Asks for the counts of the step's rows, which are there when its logits are.
  void end_step() override;
  void keep_alive() override {}
  void shut_down() override {}
  bool plans_on_device() const override { return true; }
  DType row_dtype() const override { return row_dtype_; }
  const ExpertPlacement& placement() const override { return placement_; }
  const ExpertLoad& expert_load() const override;

 private:
  struct InFlight {
    bool open = false;
    int64_t num_tokens = 0, top_k = 0;
    Address<const float> slot_weights;
    Array<int32_t> row_token, slot_row;  // [max_tokens * top_k]
    Array<int32_t> counts;               // [num_experts]
    Array<RowRun> row_runs;              // [max_tokens * top_k]
    Matrix activated;                    // [max_tokens * top_k, intermediate_dim]
    Matrix codes;                        // the same as codes, of quantised experts
    Array<float> scales;                 // [max_tokens * top_k] of these
    Matrix rows;                         // [max_tokens * top_k, hidden_dim] results, expert by expert
  };

  void run_experts(int64_t layer, const MatmulRows& tokens, InFlight& slot);

  const ExpertBank& bank_;
  Stream& stream_;
  DType row_dtype_;
  ExpertPlacement placement_;
  std::array<InFlight, kMaxInFlight> in_flight_;
  Mirror<uint32_t> row_totals_;         // [num_layers, num_experts] modulo 2^32
  mutable std::vector<uint32_t> seen_;  // likewise, as of load_
  mutable ExpertLoad load_;
};

/// The one for experts in this process: that of the device where the stream's backend is apart from the host and can count.
std::unique_ptr<TokenDispatcher> make_in_process_dispatcher(const ExpertBank& bank, Stream& stream,
                                                            const LocalTokenDispatcher::Options& options);

}  // namespace ferry
