#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "comm/group.h"
#include "kernels/host_rows.h"
#include "kernels/ops.h"
#include "moe/permutation.h"
#include "moe/token_dispatcher.h"
#include "moe/wire.h"
#include "runtime/base/aligned_buffer.h"

namespace ferry {

/// Experts on other ranks, around this one like a star. Every worker gets one message per layer, also when none of its experts
/// was chosen, and sends one back; the buffers for both are sized at start.
class RemoteTokenDispatcher final : public TokenDispatcher {
 public:
  struct Options {
    int64_t num_layers = 0;
    int64_t hidden_dim = 0;
    int64_t max_tokens = 0;  // rows of the largest step
    int64_t top_k = 0;
    DType dtype = DType::kF32;      // of the rows that come back
    DType row_dtype = DType::kF32;  // of the rows that go out: dtype, or kI8 where the experts are quantised
    CombineMode combine = CombineMode::kExact;
    std::chrono::milliseconds timeout{30000};  // for a worker to answer
  };
  /// `group` carries the messages and outlives this.
  RemoteTokenDispatcher(Group& group, ExpertMap map, Stream& stream, const Options& options);
  ~RemoteTokenDispatcher() override;

  void begin_step(int64_t step) override { step_ = step; }
  DispatchHandle dispatch(const DispatchArgs& args) override;
  void combine(DispatchHandle handle, MatrixView out) override;
  void keep_alive() override { send_control(WireKind::kKeepAlive); }
  void shut_down() override { send_control(WireKind::kShutDown); }
  DType row_dtype() const override { return options_.row_dtype; }
  const ExpertMap& expert_map() const override { return map_; }
  const ExpertLoad& expert_load() const override { return load_; }
  TransportCount transport_count() const override { return transport_; }

 private:
  struct Exchange {  // with one worker
    WireHeader header;
    std::span<std::byte> request, reply;
    std::unique_ptr<PendingOp> send, receive;
    uint64_t posted = 0;  // ticks, when both were
  };
  struct InFlight {
    bool open = false;
    int64_t top_k = 0;
    std::span<const float> topk_weights;
    Address<const float> slot_weights;
    std::chrono::steady_clock::time_point posted;  // when the last request was
    DispatchPlan plan;
    std::vector<Exchange> workers;  // [num_ranks]
    AlignedBuffer requests;
    Mirror<std::byte> replies;
  };

  void send_control(WireKind kind);
  void lay_out(InFlight& slot, const DispatchArgs& args);
  WireHeader await(Exchange& exchange, Rank worker);
  void await_all(InFlight& slot);
  static void fill_request(const RankRows& rows, const MatmulRows& tokens, Exchange& exchange);
  MatmulRows look_at(const MatmulRows& tokens);
  MatrixView device_rows(InFlight& slot, const Exchange& exchange);
  void send_weights(InFlight& slot);
  void add_experts(InFlight& slot, MatrixView out);
  void add_workers(InFlight& slot, MatrixView out);
  Deadline deadline() const { return group_.now() + options_.timeout; }

  Group& group_;
  ExpertMap map_;
  Stream& stream_;
  Options options_;
  ExpertLoad load_;
  TransportCount transport_;
  int64_t step_ = 0;
  std::array<InFlight, kMaxInFlight> in_flight_;
  std::vector<const std::byte*> slot_rows_;  // [max_tokens, top_k], of a fast combine [max_tokens, workers_per_token_]
  HostRows tokens_, scales_;                 // of the dispatch under way
  int64_t workers_per_token_;                // that can have experts of one token
  Array<float> ones_;                        // [max_tokens, workers_per_token_] of a fast combine
};

}  // namespace ferry
