#include "runtime/expert_worker.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "moe/grouped_ffn.h"
#include "moe/wire.h"
#include "profiler/span.h"
#include "runtime/base/error.h"
#include "runtime/engine.h"
#include "runtime/trace_worker.h"

namespace ferry {
namespace {

constexpr Rank kSource{0};
constexpr std::chrono::minutes kLoadTimeout{30};
// An idle coordinator says every Engine::kKeepAlivePeriod that it is alive; several missed ones mean that it hangs.
constexpr int kMissedKeepAlives = 3;

class ExpertWorker {
 public:
  ExpertWorker(const EngineOptions& options, Cluster& cluster) : cluster_(cluster) {
    const auto prepare = [&] {
      load(options);
      return make_terms(options, config_, quantization_);
    };
    cluster.agree(prepare, kLoadTimeout);
  }

  void run() {
    recorder().register_thread("experts");
    while (true) {
      const uint64_t posted = now_ticks();
      const std::unique_ptr<PendingOp> receive =
          cluster_.group()->irecv({request_.data(), request_.size()}, kSource, kRequestTag);
      cluster_.group()->wait(*receive, std::chrono::steady_clock::now() + idle_timeout_);
      const uint64_t arrived = now_ticks();
      const std::span<const std::byte> message(request_.data(), request_.size());
      switch (read_header(message).kind) {
        case WireKind::kKeepAlive: break;
        case WireKind::kShutDown: return;
        case WireKind::kRows: answer(parse_request(message), posted, arrived); break;
        case WireKind::kTrace: send(trace_->obey(message), kTraceReplyTag); break;
        case WireKind::kReply:
        case WireKind::kTraceReply: throw Error(ErrorCode::kInternal, "an expert worker received a reply");
      }
    }
  }

 private:
  void load(const EngineOptions& options) {
    config_ = load_config(options.model);
    const DType dtype = options.dtype.value_or(config_.dtype);
    const ExpertMap map = make_expert_map(config_, cluster_);
    compute_ = std::make_unique<ComputeResources>(options, cluster_, dtype);
    checkpoint_ = Checkpoint::open(options.model);
    LoadOptions load_options = make_load_options(options, dtype);
    load_options.progress = {};  // the coordinator's line is enough
    quantization_ = load_options.weights.quantization;
    const int32_t rank_idx = cluster_.rank().value - 1;
    bank_ = std::make_unique<ExpertBank>(
        load_experts(*checkpoint_, config_, map, rank_idx, *compute_->matmul, compute_->pool, load_options));

    const int64_t max_tokens = options.token_budget;
    const int64_t max_rows = max_tokens * std::min(config_.moe.top_k, bank_->num_local_experts());
    const WireHeader largest{.dtype = static_cast<uint32_t>(dtype),
                             .num_tokens = static_cast<int32_t>(max_tokens),
                             .num_rows = static_cast<int32_t>(max_rows),
                             .num_local_experts = static_cast<int32_t>(bank_->num_local_experts()),
                             .hidden_dim = static_cast<int32_t>(config_.hidden_dim),
                             .token_dtype = static_cast<uint32_t>(bank_->row_dtype(dtype))};
    request_ = AlignedBuffer(std::max(static_cast<std::size_t>(request_bytes(largest)), sizeof(TraceCommand)));
    reply_ = AlignedBuffer(static_cast<std::size_t>(reply_bytes(largest)));
    ffn_ = std::make_unique<GroupedFfn>(*bank_, *compute_->matmul, compute_->context, dtype, max_rows);
    trace_ = std::make_unique<TraceWorker>(cluster_.rank(), compute_->pool.num_threads(), options.clock_skew);
    const std::chrono::milliseconds peer_timeout(static_cast<int64_t>(options.peer_timeout_s * 1e3));
    idle_timeout_ = std::max<std::chrono::milliseconds>(peer_timeout, kMissedKeepAlives * Engine::kKeepAlivePeriod);
    idle_timeout_ += peer_timeout;  // a step may itself wait that long for another worker
  }

  /// `posted` and `arrived`: ticks between which the request was awaited.
  void answer(const RequestView& request, uint64_t posted, uint64_t arrived) {
    check_context().step = request.header.step;
    check_context().layer = request.header.layer;
    const auto bytes = static_cast<uint32_t>(request_bytes(request.header));
    record_span(Zone::kWaitDispatch, posted, arrived, 0, kSource.value);
    record_span(Zone::kDispatchReceive, posted, arrived, bytes, kSource.value);
    WireHeader header = request.header;
    header.kind = WireKind::kReply;
    const std::span<std::byte> message(reply_.data(), static_cast<std::size_t>(reply_bytes(header)));
    const auto start = std::chrono::steady_clock::now();
    {
      const Span span(Zone::kExperts, header.num_rows, kSource.value);
      ffn_->run(header.layer,
                {.tokens = request.tokens, .row_token = request.row_token, .expert_counts = request.expert_counts},
                lay_out_reply(header, message));
    }
    header.compute_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
    write_header(header, message);
    const uint64_t sent = now_ticks();
    send(message, kReplyTag);
    const uint64_t left = now_ticks();
    record_span(Zone::kWaitSend, sent, left, 0, kSource.value);
    record_span(Zone::kCombineSend, sent, left, static_cast<uint32_t>(message.size()), kSource.value);
  }

  void send(std::span<const std::byte> message, int tag) {
    const std::unique_ptr<PendingOp> pending = cluster_.group()->isend(message, kSource, tag);
    cluster_.group()->wait(*pending, std::chrono::steady_clock::now() + idle_timeout_);
  }

  Cluster& cluster_;
  ModelConfig config_;
  std::unique_ptr<ComputeResources> compute_;
  Quantization quantization_;
  std::optional<Checkpoint> checkpoint_;  // its files hold the bank's panels if they are packed
  std::unique_ptr<ExpertBank> bank_;
  std::unique_ptr<GroupedFfn> ffn_;
  std::unique_ptr<TraceWorker> trace_;
  AlignedBuffer request_, reply_;
  std::chrono::milliseconds idle_timeout_{};
};

}  // namespace

int run_expert_worker(const EngineOptions& options, Cluster& cluster) {
  ExpertWorker(options, cluster).run();
  return 0;
}

}  // namespace ferry
