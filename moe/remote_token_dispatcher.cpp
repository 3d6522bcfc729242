#include "moe/remote_token_dispatcher.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "profiler/span.h"
#include "runtime/base/error.h"

namespace ferry {

RemoteTokenDispatcher::RemoteTokenDispatcher(Group& group, ExpertMap map, Stream& stream, const Options& options)
    : group_(group),
      map_(std::move(map)),
      stream_(stream),
      options_(options),
      load_(options.num_layers, map_.num_logical()),
      workers_per_token_(std::min(options.top_k, static_cast<int64_t>(map_.ranks().size()))) {
  const bool is_fast = options.combine == CombineMode::kFast;
  const auto num_ranks = static_cast<int64_t>(map_.ranks().size());
  const int64_t row_bytes = options.hidden_dim * dtype_bytes(options.dtype);
  const int64_t token_bytes =
      options.row_dtype == DType::kI8 ? quantized_cols(options.hidden_dim) + static_cast<int64_t>(sizeof(float)) : row_bytes;
  const int64_t max_rows = options.max_tokens * options.top_k;
  // Every row costs four bytes of index, and four of weight; a token goes at most workers_per_token_ times.
  const int64_t framing = num_ranks * (static_cast<int64_t>(sizeof(WireHeader)) + 2 * kWireAlignment) +
                          4 * (map_.num_physical() + (is_fast ? 2 : 1) * max_rows);
  const int64_t max_sent = options.max_tokens * workers_per_token_;
  for (InFlight& slot : in_flight_) {
    slot.workers.resize(map_.ranks().size());
    slot.requests = AlignedBuffer(static_cast<std::size_t>(framing + max_sent * token_bytes));
    slot.replies =
        Mirror<std::byte>(stream, framing + (is_fast ? max_sent : max_rows) * row_bytes + num_ranks * kWireAlignment);
  }
  slot_rows_.resize(static_cast<std::size_t>(max_rows));
  if (is_fast) ones_ = Array<float>(stream.memory(), std::vector<float>(static_cast<std::size_t>(max_sent), 1.0F));
  tokens_ = HostRows(stream, options.row_dtype, options.max_tokens, row_cols(options.row_dtype, options.hidden_dim));
  scales_ = HostRows(stream, DType::kF32, options.max_tokens, 1);
}

RemoteTokenDispatcher::~RemoteTokenDispatcher() {
  const bool unfinished = std::any_of(in_flight_.begin(), in_flight_.end(), [](const InFlight& slot) { return slot.open; });
  if (unfinished) group_.abort();  // its buffers are about to go
}

void RemoteTokenDispatcher::lay_out(InFlight& slot, const DispatchArgs& args) {
  std::byte* request = slot.requests.data();
  std::byte* reply = slot.replies.host();
  const auto place = [](std::byte*& next, int64_t bytes) {
    const std::span<std::byte> placed(next, static_cast<std::size_t>(bytes));
    next += (bytes + kWireAlignment - 1) / kWireAlignment * kWireAlignment;
    return placed;
  };
  for (std::size_t w = 0; w < slot.workers.size(); ++w) {
    const RankRows& rows = slot.plan.ranks[w];
    Exchange& exchange = slot.workers[w];
    exchange.header = {.map_epoch = map_.epoch(),
                       .step = step_,
                       .layer = static_cast<int32_t>(args.layer),
                       .num_tokens = static_cast<int32_t>(rows.token_idx.size()),
                       .num_rows = static_cast<int32_t>(rows.row_token.size()),
                       .num_local_experts = static_cast<int32_t>(rows.expert_counts.size()),
                       .hidden_dim = static_cast<int32_t>(options_.hidden_dim),
                       .dtype = options_.dtype,
                       .token_dtype = options_.row_dtype,
                       .combine = options_.combine,
                       .micro_batch = args.micro_batch};
    exchange.request = place(request, request_bytes(exchange.header));
    exchange.reply = place(reply, reply_bytes(exchange.header));
  }
  FERRY_CHECK_LE(request, slot.requests.data() + slot.requests.size());
  FERRY_CHECK_LE(reply, slot.replies.host() + slot.replies.size());
}

void RemoteTokenDispatcher::fill_request(const RankRows& rows, const MatmulRows& tokens, Exchange& exchange) {
  write_header(exchange.header, exchange.request);
  const RequestParts parts = lay_out_request(exchange.header, exchange.request);
  std::copy(rows.expert_counts.begin(), rows.expert_counts.end(), parts.expert_counts);
  std::copy(rows.row_token.begin(), rows.row_token.end(), parts.row_token);
  const auto row_bytes = static_cast<std::size_t>(tokens.x.cols * dtype_bytes(tokens.x.dtype));
  for (std::size_t i = 0; i < rows.token_idx.size(); ++i) {
    std::memcpy(parts.tokens.row_bytes(static_cast<int64_t>(i)), tokens.x.row_bytes(rows.token_idx[i]), row_bytes);
    if (parts.scales != nullptr) parts.scales[i] = tokens.scales.host()[rows.token_idx[i]];
  }
}

/// Tells the workers by how much each row counts.
void RemoteTokenDispatcher::send_weights(InFlight& slot) {
  for (std::size_t i = 0; i < slot.plan.slots.size(); ++i) {
    const SlotRow at = slot.plan.slots[i];
    Exchange& exchange = slot.workers[static_cast<std::size_t>(at.rank_idx)];
    lay_out_request(exchange.header, exchange.request).row_weights[at.row] = slot.topk_weights[i];
  }
}

/// The rows where the host may read them.
MatmulRows RemoteTokenDispatcher::look_at(const MatmulRows& tokens) {
  tokens_.fetch(tokens.x);
  if (!tokens.scales) return {tokens_.look()};
  scales_.fetch(
      {reinterpret_cast<const std::byte*>(tokens.scales.raw()), DType::kF32, tokens.x.rows, 1, 1, tokens.scales.space()});
  return {tokens_.look(), scales_.look().row<float>(0)};
}

/// A worker's reply where the backend computes.
MatrixView RemoteTokenDispatcher::device_rows(InFlight& slot, const Exchange& exchange) {
  MatrixView rows = lay_out_reply(exchange.header, exchange.reply);
  const Address<std::byte> first = slot.replies.device() + (rows.data - slot.replies.host());
  rows.data = first.raw();
  rows.space = first.space();
  return rows;
}

DispatchHandle RemoteTokenDispatcher::dispatch(const DispatchArgs& args) {
  FERRY_CHECK(args.tokens.x.dtype == options_.row_dtype);
  FERRY_CHECK_EQ(args.tokens.x.cols, row_cols(options_.row_dtype, options_.hidden_dim));
  FERRY_CHECK_LE(args.tokens.x.rows, options_.max_tokens);
  const int slot_idx = in_flight_[0].open ? 1 : 0;
  InFlight& slot = in_flight_[static_cast<std::size_t>(slot_idx)];
  FERRY_CHECK(!slot.open) << "more than " << kMaxInFlight << " dispatches in flight";
  slot.open = true;
  slot.top_k = args.top_k;
  slot.topk_weights = args.topk_weights;
  slot.slot_weights = args.slot_weights;
  FERRY_CHECK_EQ(args.topk_idx.size(), args.topk_weights.size());
  load_.record(args.layer, args.topk_idx);
  {
    const Span span(Zone::kInitRouting, args.tokens.x.rows);
    plan_dispatch(args.topk_idx, args.top_k, map_, slot.plan);
    lay_out(slot, args);
    if (options_.combine == CombineMode::kFast) send_weights(slot);
  }
  const MatmulRows tokens = look_at(args.tokens);
  for (std::size_t w = 0; w < slot.workers.size(); ++w) {
    Exchange& exchange = slot.workers[w];
    const Rank worker = map_.ranks()[w];
    const Span span(Zone::kDispatch, exchange.header.num_rows, worker.value);
    fill_request(slot.plan.ranks[w], tokens, exchange);
    exchange.posted = now_ticks();
    exchange.receive = group_.irecv(exchange.reply, worker, kReplyTag, Fit::kExact);
    exchange.send = group_.isend(exchange.request, worker, kRequestTag);
  }
  slot.posted = std::chrono::steady_clock::now();
  return DispatchHandle(slot_idx);
}

/// Waits for a worker's reply; by then its request has long left.
WireHeader RemoteTokenDispatcher::await(Exchange& exchange, Rank worker) {
  {
    const Span span(Zone::kWaitCombine, 0, worker.value);
    group_.wait(*exchange.receive, deadline());
  }
  const auto peer = static_cast<uint32_t>(worker.value);
  record_span(Zone::kCombineReceive, exchange.posted, now_ticks(), static_cast<uint32_t>(exchange.reply.size()), peer);
  group_.wait(*exchange.send, deadline());
  record_span(Zone::kDispatchSend, exchange.posted, now_ticks(), static_cast<uint32_t>(exchange.request.size()), peer);
  record_value(Zone::kRankRows, exchange.header.num_rows, peer);
  return parse_reply(exchange.reply, exchange.header, worker);
}

/// Receives every worker's reply and counts what that cost.
void RemoteTokenDispatcher::await_all(InFlight& slot) {
  using Seconds = std::chrono::duration<double>;
  const auto start = std::chrono::steady_clock::now();
  double slowest_s = 0;
  for (std::size_t w = 0; w < slot.workers.size(); ++w) {
    Exchange& exchange = slot.workers[w];
    const WireHeader got = await(exchange, map_.ranks()[w]);
    exchange.receive.reset();
    exchange.send.reset();
    slot.replies.send(exchange.reply.data() - slot.replies.host(), std::ssize(exchange.reply));
    slowest_s = std::max(slowest_s, static_cast<double>(got.compute_ns) * 1e-9);
    transport_.bytes_out += static_cast<int64_t>(exchange.request.size());
    transport_.bytes_in += static_cast<int64_t>(exchange.reply.size());
  }
  const auto end = std::chrono::steady_clock::now();
  const double wait_s = Seconds(end - start).count(), under_way_s = Seconds(end - slot.posted).count() - slowest_s;
  if (slot.workers.front().header.micro_batch == 0) ++transport_.layers;
  transport_.wait_s += wait_s;
  transport_.transport_s += std::clamp(under_way_s, 0.0, wait_s);
}

void RemoteTokenDispatcher::combine(DispatchHandle handle, MatrixView out) {
  InFlight& slot = in_flight_.at(static_cast<std::size_t>(handle.release()));
  FERRY_CHECK(slot.open);
  await_all(slot);
  if (options_.combine == CombineMode::kExact) {
    add_experts(slot, out);
  } else {
    add_workers(slot, out);
  }
  slot.open = false;
}

/// Sums a token's rows in slot order.
void RemoteTokenDispatcher::add_experts(InFlight& slot, MatrixView out) {
  for (std::size_t i = 0; i < slot.plan.slots.size(); ++i) {
    const SlotRow at = slot.plan.slots[i];
    Exchange& exchange = slot.workers[static_cast<std::size_t>(at.rank_idx)];
    slot_rows_[i] = device_rows(slot, exchange).row_address(at.row);
  }
  ferry::combine(stream_, {.slot_rows = std::span(slot_rows_).first(slot.plan.slots.size()),
                           .slot_weights = slot.slot_weights,
                           .num_slots = slot.top_k,
                           .out = out});
}

/// Sums what the workers have added up for a token, in the order of ranks.
void RemoteTokenDispatcher::add_workers(InFlight& slot, MatrixView out) {
  const auto slots = static_cast<std::size_t>(workers_per_token_);
  const std::span<const std::byte*> slot_rows = std::span(slot_rows_).first(static_cast<std::size_t>(out.rows) * slots);
  std::ranges::fill(slot_rows, nullptr);
  for (std::size_t w = 0; w < slot.workers.size(); ++w) {
    const MatrixView rows = device_rows(slot, slot.workers[w]);
    const std::vector<int32_t>& tokens = slot.plan.ranks[w].token_idx;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto begin = slot_rows.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(tokens[i]) * slots);
      *std::find(begin, begin + workers_per_token_, nullptr) = rows.row_address(static_cast<int64_t>(i));
    }
  }
  ferry::combine(stream_, {.slot_rows = slot_rows, .slot_weights = ones_.data(), .num_slots = workers_per_token_, .out = out});
}

void RemoteTokenDispatcher::send_control(WireKind kind) {
  const WireHeader header{.kind = kind, .map_epoch = map_.epoch(), .step = step_};
  std::vector<std::byte> message(sizeof(WireHeader));
  write_header(header, message);
  group_.group_start();
  for (const Rank worker : map_.ranks()) group_.send(message, worker, kRequestTag);
  group_.group_end(deadline());
}

}  // namespace ferry
