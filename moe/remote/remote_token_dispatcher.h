#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "comm/link.h"
#include "kernels/host_rows.h"
#include "kernels/ops.h"
#include "moe/placement/choose.h"
#include "moe/remote/cost_fit.h"
#include "moe/remote/exchange.h"
#include "moe/remote/orphan_experts.h"
#include "moe/remote/worker_seats.h"
#include "moe/row_adder.h"
#include "moe/token_dispatcher.h"
#include "moe/wire.h"

namespace ferry {

/// Rows since the start that did not come from whom they were meant for.
struct CoverCount {
  int64_t by_workers = 0;      // asked of another worker as well, since the first one was late or lost
  int64_t by_coordinator = 0;  // computed here
};

/// Answers of workers since the start.
struct AnswerCount {
  int64_t all = 0;     // that had rows
  int64_t merged = 0;  // of these, computed together with another coordinator's
};

/// Experts on other ranks, around this one like a star. In every layer each touched expert goes whole to one of its live
/// holders, so that the fullest worker is least full; every healthy worker gets one message, also when none of its experts was
/// chosen, and sends one back; the buffers for both are sized when the placement is set.
///
/// What a worker does not answer is asked of others, and what nobody holds is computed here, in the same layer:
///
///   its link ends, or it is silent for the timeout   masked: its rows go to other holders, or are computed here
///   it is later than it ever is, by far              suspect: the same rows go to others too, and the first answer counts
///   finite rows come back as values that are not     the same rows go to others; if theirs are finite, it is masked
///
/// Which of them answers changes no bit (of CombineMode::kExact), since a row depends on its expert and its token alone.
class RemoteTokenDispatcher final : public TokenDispatcher {
 public:
  /// When a worker that has not answered is suspected: `at_least`, and `factor` times its usual time. Where other workers hold
  /// all that it was asked for, or else (its experts then have to be read here first) the second; the third of one that has
  /// never answered.
  struct Patience {
    std::chrono::milliseconds at_least{50};
    std::chrono::milliseconds at_least_alone{1000};
    std::chrono::milliseconds at_first{3000};
    int factor = 8;
  };
  struct Options {
    int64_t hidden_dim = 0;
    int64_t max_tokens = 0;  // rows of the largest step
    int64_t top_k = 0;
    DType dtype = DType::kF32;      // of the rows that come back
    DType row_dtype = DType::kF32;  // of the rows that go out: dtype, or kI8 where the experts are quantised
    CombineMode combine = CombineMode::kExact;
    std::chrono::milliseconds timeout{30000};  // for a worker to answer
    uint16_t source = 0;                       // of what is sent
    Patience patience;
    ExpertCost cost{.fixed = 16, .per_row = 1};  // of an expert, in rows, before anything is learnt: as of a bf16 one of 6 MB
  };
  /// `links` [placement's ranks], null where nobody is. `hub` and links carry the messages; `orphans` may be null: then what
  /// nobody holds is an Error. All outlive this.
  RemoteTokenDispatcher(LinkHub& hub, ExpertPlacement placement, const std::vector<Link*>& links, OrphanExperts* orphans,
                        Stream& stream, const Options& options, OnWorkerChange on_change = {});
  ~RemoteTokenDispatcher() override;

  /// Between steps: who holds what from now on, and who they are, as in the constructor. A link that goes was answered or has
  /// failed.
  void assign(ExpertPlacement placement, const std::vector<Link*>& links);

  /// Between steps: a worker is left or lost, and its link may go. Nobody sits there until the next placement.
  void retire(int32_t worker, const std::string& reason);

  void begin_step(int64_t step) override;
  DispatchHandle dispatch(const DispatchArgs& args) override;
  /// The dispatch's tokens, which `out` does not overlap, stay untouched until this returns. Throws Error{kInternal} that names
  /// the rank if a reply holds values that are not finite and nobody else can compute its rows.
  void combine(DispatchHandle handle, MatrixView out) override;
  bool sends_rows() const override { return true; }
  void keep_alive() override;
  void shut_down() override;
  DType row_dtype() const override { return options_.row_dtype; }
  const ExpertPlacement& placement() const override { return placement_; }
  const ExpertLoad& expert_load() const override { return load_; }
  TransportCount transport_count() const override { return transport_; }
  /// As learnt from replies (ExpertCostFit); over a group, where steps must be the same from run to run, the first one.
  const ExpertCost& expert_cost() const { return cost_; }
  const CoverCount& cover_count() const { return covered_; }
  const AnswerCount& answer_count() const { return answers_; }

  const WorkerSeats& workers() const { return seats_; }
  /// Between steps: for whoever decides who comes and goes.
  WorkerSeats& workers() { return seats_; }

 private:
  using State = Exchange::State;

  /// What is left of dispatches whose rows were got from others: buffers that a worker may still use.
  struct Late {
    std::vector<std::unique_ptr<ExchangeBuffers>> buffers;
    std::vector<Exchange> exchanges;
  };
  /// An unfinished exchange and what it is waited for with.
  struct Awaited {
    Exchange* exchange;
    Late* late;  // null: of the dispatch that is being combined
  };

  /// Bytes of ExchangeBuffers.
  struct BufferSizes {
    int64_t requests = 0, replies = 0;
  };

  // Sending.
  void size_buffers();
  void drop_late(int32_t worker);
  BufferSizes buffer_sizes(int64_t max_sent, int64_t max_rows) const;
  std::unique_ptr<ExchangeBuffers> make_buffers(const BufferSizes& sizes) const;
  void learn_costs();
  void choose_owners(int64_t layer, std::span<const int32_t> topk_idx, uint64_t live);
  void plan_wave(Flight& flight, Wave& wave, std::span<const int32_t> topk_idx, uint8_t attempt);
  void lay_out(Flight& flight, Wave& wave, uint8_t attempt);
  void add_weights(const Flight& flight, const Wave& wave);
  void send_wave(Flight& flight, Wave& wave);
  void post(Exchange& exchange);
  MatmulRows look_at(const MatmulRows& tokens);
  int32_t here() const { return seats_.size(); }

  // Waiting.
  void await_all(Flight& flight);
  void await_some(Flight& flight);
  Deadline next_deadline(const Flight& flight) const;
  std::chrono::nanoseconds patience_with(const Exchange& exchange) const;
  void finish(Exchange& exchange, uint64_t begun);
  void take_rows(Exchange& exchange);
  void check_silence(Flight& flight, uint64_t begun);
  bool others_hold(const Exchange& exchange) const;
  void lose(int32_t worker, const Error& error);
  void cover(Flight& flight, Wave& wave, Exchange& exchange);
  void cover_lost(Flight& flight);
  void count_cover(const Wave& wave);
  void close(Flight& flight);
  void end_doubt(int32_t worker);
  void collect_late(Late& late, Exchange& exchange, uint64_t begun);
  void check_late();
  bool lose_late();

  // Replies that are not finite (remote_verdict.cpp).
  bool is_sum_finite(const Flight& flight, ConstMatrixView sum) const;
  bool replace_bad_rows(Flight& flight);
  void ask_others(Flight& flight, Wave& wave, Exchange& exchange);
  bool has_bad_rows(const Flight& flight, const Wave& wave, const Exchange& exchange);
  bool is_confirmed(const Flight& flight, const Exchange& exchange);
  Error bad_reply(const Exchange& exchange) const;

  // Computing and adding up.
  void compute_here(Flight& flight, Wave& wave);
  void add_up(Flight& flight, MatrixView out);
  void add_experts(Flight& flight, MatrixView out);
  void add_workers(Flight& flight, MatrixView out);
  void send_control(WireKind kind);

  LinkHub& hub_;
  Stream& stream_;
  OrphanExperts* const orphans_;
  const Options options_;
  ExpertPlacement placement_;
  WorkerSeats seats_;
  ExpertLoad load_;
  TransportCount transport_;
  CoverCount covered_;
  AnswerCount answers_;
  int64_t step_ = 0;
  int64_t steps_to_speeds_ = 0;
  std::vector<double> speeds_;
  ExpertCostFit cost_fit_;
  ExpertCost cost_;
  std::optional<ExpertChooser> chooser_;
  std::array<Flight, kMaxInFlight> flights_;
  std::vector<std::unique_ptr<Late>> late_;
  HostRows tokens_, scales_;                 // of the dispatch under way
  int64_t workers_per_token_ = 0;            // that can have experts of one token
  uint64_t accused_ = 0;                     // workers that get no rows until it is known whether their replies are right
  std::vector<int32_t> expert_rows_;         // [num_experts] of the wave that is planned
  std::vector<ExpertOwner> owners_;          // likewise
  std::vector<int32_t> num_local_;           // [num_workers + 1] of the layer
  std::vector<const std::byte*> slot_rows_;  // [max_tokens, top_k]
  Array<float> ones_;                        // [max_tokens, top_k] of a fast combine
  std::optional<RowAdder> adder_;            // of a fast combine with rows that are computed here
  std::vector<Awaited> awaited_;             // by what the hub waits for
  std::vector<PendingOp*> ops_;              // likewise
};

}  // namespace ferry
