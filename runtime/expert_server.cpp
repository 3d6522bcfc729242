#include "runtime/expert_server.h"

#include <algorithm>
#include <string>

#include "moe/assignment.h"
#include "profiler/span.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

// An idle coordinator says every kKeepAlivePeriod that it is alive; several missed ones mean that it hangs.
constexpr int kMissedKeepAlives = 3;
constexpr std::chrono::milliseconds kPreparingPeriod{5};  // of a worker that waits while it makes an assignment ready
constexpr std::chrono::milliseconds kLeavePeriod{50};     // of one that may be asked to leave

/// A message that cannot be read is its sender's fault, and the Error says whose.
template <class Read>
auto blame(const Link& source, Read&& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(error.code(), "rank " + std::to_string(source.peer().value) + ": " + error.what());
  }
}

}  // namespace

ExpertServer::ExpertServer(ExpertHolder& holder, LinkHub& hub, Link& source, const Options& options)
    : holder_(holder),
      hub_(hub),
      source_(source),
      options_(options),
      trace_(options.rank, holder.num_threads(), options.clock_skew),
      idle_timeout_(std::max<std::chrono::milliseconds>(options.peer_timeout, kMissedKeepAlives * kKeepAlivePeriod) +
                    options.peer_timeout) {  // a step may itself wait that long for another worker
  const WorkerShape shape = holder.largest_shape();
  const int64_t inbox_bytes =
      std::max({max_request_bytes(shape), max_assignment_bytes(holder.num_layers(), holder.config().moe.num_experts),
                static_cast<int64_t>(sizeof(TraceCommand))});
  for (Inbox& inbox : inboxes_) inbox.bytes = AlignedBuffer(static_cast<std::size_t>(inbox_bytes));
  reply_ = AlignedBuffer(static_cast<std::size_t>(max_reply_bytes(shape)));
}

ExpertServer::~ExpertServer() {
  const bool unfinished = std::ranges::any_of(inboxes_, [](const Inbox& inbox) { return inbox.receive != nullptr; });
  // Its memory is about to go.
  if (unfinished && hub_.fails_together() && !source_.failure()) source_.fail("this rank leaves");
}

/// The next message may arrive while the last one is computed: one inbox is being read, the other is being filled.
ExpertServer::Goodbye ExpertServer::run() {
  recorder().register_thread("experts");
  post_receive(inboxes_[0]);
  for (std::size_t at = 0;; at = 1 - at) {
    Inbox& inbox = inboxes_[at];
    const uint64_t begun = now_ticks();
    const std::size_t num_received = await(inbox);
    const uint64_t arrived = now_ticks();
    const std::span<const std::byte> message(inbox.bytes.data(), num_received);
    const WireHeader header = blame(source_, [&] { return read_header_of_any_epoch(message); });
    if (header.kind == WireKind::kShutDown) return {.are_ranks_lost = header.flags == kRanksLost};
    post_receive(inboxes_[1 - at]);  // a goodbye comes at the latest
    if (header.kind != WireKind::kAssign) {  // that one has the epoch of what is to come
      epoch_ = header.map_epoch;
      holder_.go_over(epoch_);
    }
    switch (header.kind) {
      case WireKind::kRows: answer(message, begun, arrived); break;
      case WireKind::kTrace: send(blame(source_, [&] { return trace_.answer(message); }), kTraceReplyTag); break;
      case WireKind::kAssign: assign(message); break;
      case WireKind::kKeepAlive:
      case WireKind::kShutDown: break;
      case WireKind::kReply:
      case WireKind::kTraceReply:
      case WireKind::kPrepared:
      case WireKind::kLeave:
        throw Error(ErrorCode::kInternal,
                    "rank " + std::to_string(source_.peer().value) + ": sent an expert worker what it does not take");
    }
    tend();
  }
}

void ExpertServer::post_receive(Inbox& inbox) {
  inbox.receive = source_.irecv({inbox.bytes.data(), inbox.bytes.size()}, kRequestTag, Fit::kUpTo);
}

/// The bytes of the next message; meanwhile this rank does what else there is to do. Over a group a deadline is the end of all
/// links, and there is nothing else.
std::size_t ExpertServer::await(Inbox& inbox) {
  const Deadline last = deadline();
  while (true) {
    Deadline next = last;
    if (holder_.is_preparing()) {
      next = std::min(last, hub_.now() + kPreparingPeriod);
    } else if (options_.wants_to_leave && !has_asked_to_leave_) {
      next = std::min(last, hub_.now() + kLeavePeriod);
    }
    try {
      const std::size_t num_received = source_.wait(*inbox.receive, next);
      inbox.receive.reset();
      return num_received;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDeadlineExceeded || next == last) throw;
    }
    tend();
  }
}

/// Between two messages.
void ExpertServer::tend() {
  if (holder_.is_preparing()) {
    if (const std::optional<Preparation> preparation = holder_.advance()) send(encode_preparation(*preparation), kNoticeTag);
  }
  if (has_asked_to_leave_ || !options_.wants_to_leave || !options_.wants_to_leave()) return;
  has_asked_to_leave_ = true;
  std::array<std::byte, sizeof(WireHeader)> message{};
  write_header({.kind = WireKind::kLeave, .map_epoch = epoch_}, message);
  send(message, kNoticeTag);
}

/// `begun` and `arrived`: ticks between which the request was awaited.
void ExpertServer::answer(std::span<const std::byte> message, uint64_t begun, uint64_t arrived) {
  const RequestView request = blame(source_, [&] { return parse_request(message, holder_.shape()); });
  const WireHeader& header = request.header;
  const auto peer = static_cast<uint32_t>(source_.peer().value);
  check_context().step = header.step;
  check_context().layer = header.layer;
  check_context().micro_batch = header.micro_batch;
  record_span(Zone::kWaitDispatch, begun, arrived, 0, peer);
  record_span(Zone::kDispatchReceive, begun, arrived, static_cast<uint32_t>(request_bytes(header)), peer);
  std::span<const std::byte> reply;
  {
    const Span span(Zone::kExperts, header.num_rows, peer);
    reply = blame(source_, [&] { return holder_.answer(request, {reply_.data(), reply_.size()}); });
  }
  const uint64_t sent = now_ticks();
  send(reply, kReplyTag);
  const uint64_t left = now_ticks();
  record_span(Zone::kWaitSend, sent, left, 0, peer);
  record_span(Zone::kCombineSend, sent, left, static_cast<uint32_t>(reply.size()), peer);
  run_account_.record_own();  // the coordinator has its rows: nobody waits for these any more
  run_account_.record_others();
}

void ExpertServer::assign(std::span<const std::byte> message) {
  Assignment assignment = blame(
      source_, [&] { return decode_assignment(message, holder_.num_layers(), holder_.config().moe.num_experts); });
  if (!assignment.experts.empty()) holder_.prepare(std::move(assignment));
}

void ExpertServer::send(std::span<const std::byte> message, int tag) {
  const std::unique_ptr<PendingOp> pending = source_.isend(message, tag);
  source_.wait(*pending, deadline());
}

}  // namespace ferry
