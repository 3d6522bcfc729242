#include "runtime/expert_worker.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "moe/assignment.h"
#include "moe/reply_writer.h"
#include "profiler/run_account.h"
#include "profiler/span.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/error.h"
#include "runtime/device_needs.h"
#include "runtime/model/expert_loader.h"
#include "runtime/rank_setup.h"
#include "runtime/trace/trace_worker.h"

namespace ferry {
namespace {

constexpr Rank kSource{0};
// An idle coordinator says every kKeepAlivePeriod that it is alive; several missed ones mean that it hangs.
constexpr int kMissedKeepAlives = 3;

/// A message that cannot be read is its sender's fault, and the Error says whose.
template <class Read>
auto blame_source(Read&& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(error.code(), "rank " + std::to_string(kSource.value) + ": " + error.what());
  }
}

/// Of any layer.
int64_t most_experts(const RankExperts& experts) {
  std::size_t most = 0;
  for (const auto& layer : experts) most = std::max(most, layer.size());
  return static_cast<int64_t>(most);
}

class ExpertWorker {
 public:
  ExpertWorker(const EngineOptions& options, Cluster& cluster)
      : cluster_(cluster), hub_(*cluster.hub()), source_(cluster.link(kSource)) {
    const std::vector<std::byte> assignment = receive_assignment(cluster);
    const auto prepare = [&] {
      load(options, assignment);
      return make_terms(options, config_, quantization_, *compute_);
    };
    cluster.agree(prepare, kLoadTimeout);
  }

  ~ExpertWorker() {
    const bool unfinished = std::ranges::any_of(inboxes_, [](const Inbox& inbox) { return inbox.receive != nullptr; });
    // Its memory is about to go.
    if (unfinished && hub_.fails_together() && !source_.failure()) source_.fail("this rank leaves");
  }
  ExpertWorker(const ExpertWorker&) = delete;
  ExpertWorker& operator=(const ExpertWorker&) = delete;

  /// The next message may arrive while the last one is computed: one inbox is being read, the other is being filled.
  void run() {
    recorder().register_thread("experts");
    post_receive(inboxes_[0]);
    for (std::size_t at = 0;; at = 1 - at) {
      Inbox& inbox = inboxes_[at];
      const uint64_t begun = now_ticks();
      const std::size_t num_received = source_.wait(*inbox.receive, deadline());
      inbox.receive.reset();
      const uint64_t arrived = now_ticks();
      const std::span<const std::byte> message(inbox.bytes.data(), num_received);
      const WireHeader header = blame_source([&] { return read_header(message, replies_->shape().map_epoch); });
      const WireKind kind = header.kind;
      if (kind == WireKind::kShutDown) {
        if (header.flags == kRanksLost) cluster_.abandon();
        return;
      }
      post_receive(inboxes_[1 - at]);  // a goodbye comes at the latest
      switch (kind) {
        case WireKind::kRows:
          answer(blame_source([&] { return parse_request(message, replies_->shape()); }), begun, arrived);
          break;
        case WireKind::kTrace: send(blame_source([&] { return trace_->answer(message); }), kTraceReplyTag); break;
        case WireKind::kKeepAlive:
        case WireKind::kShutDown: break;
        case WireKind::kReply:
        case WireKind::kTraceReply:
        case WireKind::kAssign: throw Error(ErrorCode::kInternal, "rank 0: sent an expert worker what it does not take");
      }
    }
  }

 private:
  struct Inbox {
    AlignedBuffer bytes;
    std::unique_ptr<PendingOp> receive;
  };

  void load(const EngineOptions& options, std::span<const std::byte> message) {
    config_ = load_config(options.model);
    const DType dtype = options.dtype.value_or(config_.dtype);
    compute_ = std::make_unique<ComputeResources>(options, cluster_, dtype);
    checkpoint_ = Checkpoint::open(options.model);
    choose_speculation(options, *checkpoint_, config_);
    const Assignment assignment = blame_source(
        [&] { return decode_assignment(message, std::max<int64_t>(config_.num_expert_layers(), 1), config_.moe.num_experts); });
    if (assignment.experts.empty()) throw Error(ErrorCode::kUnavailable, "the coordinator failed");
    LoadOptions load_options = make_load_options(options, dtype, config_, *checkpoint_, *compute_);
    load_options.progress = {};  // the coordinator's line is enough
    quantization_ = load_options.weights.quantization;
    const ReplyWriter::Options reply_options{.map_epoch = assignment.epoch,
                                             .max_tokens = options.token_budget,
                                             .top_k = config_.moe.top_k,
                                             .dtype = dtype,
                                             .combine = options.combine};
    if (compute_->device) {
      const int64_t num_local = most_experts(assignment.experts);
      require_device_memory(*compute_->device, worker_needs(config_, quantization_, num_local, reply_options));
    }
    loader_.emplace(*checkpoint_, config_, compute_->backend.matmul(), std::move(load_options));
    bank_ = std::make_unique<ExpertBank>(loader_->load_all(assignment.experts, compute_->pool));

    replies_ = std::make_unique<ReplyWriter>(*bank_, compute_->stream, reply_options);
    for (Inbox& inbox : inboxes_)
      inbox.bytes =
          AlignedBuffer(std::max(static_cast<std::size_t>(max_request_bytes(replies_->shape())), sizeof(TraceCommand)));
    reply_ = AlignedBuffer(static_cast<std::size_t>(max_reply_bytes(replies_->shape())));
    trace_ = std::make_unique<TraceWorker>(cluster_.rank(), compute_->pool.num_threads(), options.clock_skew, assignment.epoch);
    const std::chrono::milliseconds peer_timeout = to_milliseconds(options.peer_timeout_s);
    idle_timeout_ = std::max<std::chrono::milliseconds>(peer_timeout, kMissedKeepAlives * kKeepAlivePeriod);
    idle_timeout_ += peer_timeout;  // a step may itself wait that long for another worker
  }

  void post_receive(Inbox& inbox) {
    inbox.receive = source_.irecv({inbox.bytes.data(), inbox.bytes.size()}, kRequestTag, Fit::kUpTo);
  }

  /// `begun` and `arrived`: ticks between which the request was awaited.
  void answer(const RequestView& request, uint64_t begun, uint64_t arrived) {
    check_context().step = request.header.step;
    check_context().layer = request.header.layer;
    check_context().micro_batch = request.header.micro_batch;
    const auto bytes = static_cast<uint32_t>(request_bytes(request.header));
    record_span(Zone::kWaitDispatch, begun, arrived, 0, kSource.value);
    record_span(Zone::kDispatchReceive, begun, arrived, bytes, kSource.value);
    const std::span<const std::byte> message = compute(request);
    const uint64_t sent = now_ticks();
    send(message, kReplyTag);
    const uint64_t left = now_ticks();
    record_span(Zone::kWaitSend, sent, left, 0, kSource.value);
    record_span(Zone::kCombineSend, sent, left, static_cast<uint32_t>(message.size()), kSource.value);
    run_account_.record_own();  // the coordinator has its rows: nobody waits for these any more
    run_account_.record_others();
  }

  std::span<const std::byte> compute(const RequestView& request) {
    const Span span(Zone::kExperts, request.header.num_rows, kSource.value);
    return blame_source([&] { return replies_->write(request, {reply_.data(), reply_.size()}); });
  }

  void send(std::span<const std::byte> message, int tag) {
    const std::unique_ptr<PendingOp> pending = source_.isend(message, tag);
    source_.wait(*pending, deadline());
  }

  Deadline deadline() const { return hub_.now() + idle_timeout_; }

  Cluster& cluster_;
  LinkHub& hub_;
  Link& source_;
  ModelConfig config_;
  std::unique_ptr<ComputeResources> compute_;
  Quantization quantization_;
  std::optional<Checkpoint> checkpoint_;  // its files hold the bank's panels if they are packed
  std::optional<ExpertLoader> loader_;
  std::unique_ptr<ExpertBank> bank_;
  std::unique_ptr<ReplyWriter> replies_;
  std::unique_ptr<TraceWorker> trace_;
  RunAccount run_account_;
  std::array<Inbox, 2> inboxes_;
  AlignedBuffer reply_;
  std::chrono::milliseconds idle_timeout_{};
};

}  // namespace

int run_expert_worker(const EngineOptions& options, Cluster& cluster) {
  ExpertWorker(options, cluster).run();
  return 0;
}

}  // namespace ferry
