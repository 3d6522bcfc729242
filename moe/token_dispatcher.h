#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/matmul.h"
#include "moe/expert_load.h"
#include "moe/expert_placement.h"

// The routed experts behind one interface, wherever they live. A MoE layer of the decoder is:
//
//   router_logits = router(x)                            // [num_tokens, num_experts]
//   topk_idx, topk_weights = top-k of softmax            // [num_tokens, top_k]
//   handle = dispatcher.dispatch({layer, x, topk_idx, topk_weights})  // rows leave for their experts
//   shared = shared_expert(x)                            // meanwhile, on this rank
//   dispatcher.combine(handle, routed)                   // results come back, added in slot order in fp32
//   out = routed + sigmoid(gate . x) * shared
//
// The in-process and the distributed dispatchers run the same kernels on the same rows, so their results have the same bits
// (with CombineMode::kFast the workers add up their own rows first, and rounding differs).

namespace ferry {

struct DispatchArgs {
  int64_t layer = 0;
  MatmulRows tokens;  // [num_tokens, hidden_dim] of the row dtype; must stay untouched until combine
  // As the host sees them, of a dispatcher that plans on the host:
  std::span<const int32_t> topk_idx;    // [num_tokens * top_k] logical experts
  std::span<const float> topk_weights;  // [num_tokens * top_k] of their rows in the sum; must stay untouched until combine
  Address<const float> slot_weights;    // the same in the memory of the backend; likewise
  Address<const int32_t> slot_experts;  // topk_idx there
  const RouterTopkArgs* choice =
      nullptr;  // what writes the last two, of a dispatcher that plans on the device: if it has not run
  int64_t top_k = 0;
  uint8_t micro_batch = 0;  // among those of the layer in this step, < kMaxMicroBatches (moe/wire.h)
};

/// One dispatch on its way; combine consumes it. Up to TokenDispatcher::kMaxInFlight may be open, so that two micro-batches
/// can overlap.
class DispatchHandle {
 public:
  DispatchHandle() = default;
  explicit DispatchHandle(int slot) : slot_(slot) {}
  DispatchHandle(DispatchHandle&& other) noexcept : slot_(other.release()) {}
  DispatchHandle& operator=(DispatchHandle&& other) noexcept {
    slot_ = other.release();
    return *this;
  }
  /// The dispatcher's buffer set; the handle is empty afterwards.
  int release() {
    const int slot = slot_;
    slot_ = -1;
    return slot;
  }

 private:
  int slot_ = -1;
};

/// What carrying rows to other ranks has cost so far; zeros where all experts are in this process.
struct TransportCount {
  int64_t layers = 0;  // whose rows travelled, in one or two micro-batches
  int64_t bytes_out = 0, bytes_in = 0;
  double wait_s = 0;       // combine stood still for replies
  double transport_s = 0;  // of that: while no reply that was waited for was still being computed

  TransportCount operator-(const TransportCount& earlier) const {
    return {layers - earlier.layers, bytes_out - earlier.bytes_out, bytes_in - earlier.bytes_in, wait_s - earlier.wait_s,
            transport_s - earlier.transport_s};
  }
};

/// One thread at a time. Errors: a lost or silent worker is Error{kUnavailable} or {kDeadlineExceeded} naming the rank, an
/// answer to something else Error{kInternal}; the dispatcher is of no use afterwards.
class TokenDispatcher {
 public:
  static constexpr int kMaxInFlight = 2;

  virtual ~TokenDispatcher() = default;

  /// Steps are numbered by the caller; the number travels with the rows.
  virtual void begin_step(int64_t step) = 0;
  virtual DispatchHandle dispatch(const DispatchArgs& args) = 0;
  /// out [num_tokens, hidden_dim] = sum over k of topk_weights [num_tokens, top_k] times the expert's row.
  virtual void combine(DispatchHandle handle, MatrixView out) = 0;

  /// In place of combine(): what it would hand to the stream, for a caller who hands it in together with what follows, before
  /// the next dispatch. None, and the handle stays, if it is no such op.
  virtual std::optional<CombineArgs> take_combine(DispatchHandle& /*handle*/, MatrixView /*out*/) { return {}; }

  /// Every layer of the step has been handed in; its logits have not been looked at.
  virtual void end_step() {}
  /// Whether it works out on the device what goes where, so that the host need not look at what a router chose.
  virtual bool plans_on_device() const { return false; }

  /// Whether rows go to other ranks, which work while the caller does.
  virtual bool sends_rows() const { return false; }

  /// Tells idle workers that this rank is alive; call at least every kKeepAlivePeriod while no step runs.
  virtual void keep_alive() = 0;
  /// Tells the workers to leave. No call may follow.
  virtual void shut_down() = 0;

  /// What dispatch takes: values of the run's dtype, or codes (kI8, with scales) where the experts are quantised.
  virtual DType row_dtype() const = 0;
  /// Who holds what. Its epoch changes between steps alone.
  virtual const ExpertPlacement& placement() const = 0;
  virtual const ExpertLoad& expert_load() const = 0;
  virtual TransportCount transport_count() const { return {}; }
};

}  // namespace ferry
