#include "runtime/expert_server.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "moe/assignment.h"
#include "profiler/span.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/memory_use.h"

namespace ferry {
namespace {

// An idle coordinator says every kKeepAlivePeriod that it is alive; several missed ones mean that it hangs.
constexpr int kMissedKeepAlives = 3;
constexpr std::chrono::milliseconds kPreparingPeriod{5};  // of a worker that waits while it makes an assignment ready
constexpr std::chrono::seconds kSignPeriod{1};            // of which it says that it is alive
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

/// Sets the first value of a reply that has rows to NaN, as --fault asks for it.
void spoil(std::span<std::byte> reply) {
  const MatrixView rows = lay_out_reply(read_header_of_any_epoch(reply), reply);
  if (rows.rows == 0) return;
  visit_dtype(rows.dtype, [&]<class T>() { rows.row<T>(0)[0] = from_float<T>(std::numeric_limits<float>::quiet_NaN()); });
}

}  // namespace

/// One conversation. The next message may arrive while the last one is computed: one inbox is being read, the other is being
/// filled.
struct ExpertServer::Session {
  Session(int number_, Rank own_rank, Link& link, ExpertHolder& experts, const ClockSkew& skew)
      : number(number_),
        rank(own_rank),
        source(link),
        holder(experts),
        trace(own_rank, experts.shelf().compute().pool.num_threads(), skew) {
    const WorkerShape shape = holder.largest_shape();
    const int64_t inbox_bytes = std::max(
        {max_request_bytes(shape), max_assignment_bytes(holder.shelf().num_layers(), holder.shelf().config().moe.num_experts),
         static_cast<int64_t>(sizeof(TraceCommand))});
    const MemoryUseScope use(MemoryUse::kExchange);
    for (Inbox& inbox : inboxes) inbox.bytes = AlignedBuffer(static_cast<std::size_t>(inbox_bytes));
    reply_bytes = AlignedBuffer(static_cast<std::size_t>(max_reply_bytes(shape)));
  }

  Inbox& inbox() { return inboxes[at]; }
  void post() { inbox().receive = source.irecv({inbox().bytes.data(), inbox().bytes.size()}, kRequestTag, Fit::kUpTo); }
  std::span<std::byte> room() { return {reply_bytes.data(), reply_bytes.size()}; }
  bool is_rows() const { return message && message->header.kind == WireKind::kRows; }

  const int number;  // of all sessions that there ever were
  const Rank rank;   // this one's, as the coordinator calls it
  Link& source;
  ExpertHolder& holder;
  TraceWorker trace;
  std::array<Inbox, 2> inboxes;
  std::size_t at = 0;                  // of the inbox that is being filled, or was
  std::optional<Message> message;      // that has come and is not handled
  std::optional<Deadline> held_until;  // it waits for others of its layer
  AlignedBuffer reply_bytes;
  Deadline last_word;    // of the coordinator
  Deadline last_sign{};  // of this rank, that it is alive while it makes an assignment ready
  uint32_t epoch = 0;    // of its placement
  bool has_asked_to_leave = false;
  bool is_over = false;         // with a goodbye
  bool are_ranks_lost = false;  // which said so
  std::optional<Error> error;   // or without one
};

ExpertServer::ExpertServer(ExpertShelf& shelf, LinkHub& hub, Options options)
    : shelf_(shelf),
      hub_(hub),
      options_(std::move(options)),
      idle_timeout_(std::max<std::chrono::milliseconds>(options_.peer_timeout, kMissedKeepAlives * kKeepAlivePeriod) +
                    options_.peer_timeout) {}  // a step may itself wait that long for another worker

ExpertServer::~ExpertServer() {
  for (const auto& session : sessions_) drop_receive(*session);
}

/// The memory of what a session awaits is about to go, which a group's link must know.
void ExpertServer::drop_receive(Session& session) const {
  if (hub_.fails_together() && session.inbox().receive && !session.source.failure()) session.source.fail("this rank leaves");
}

void ExpertServer::begin(Rank rank, Link& source, ExpertHolder& holder) {
  recorder().register_thread("experts");
  Session& session =
      *sessions_.emplace_back(std::make_unique<Session>(num_sessions_++, rank, source, holder, options_.clock_skew));
  session.last_word = hub_.now();
  guard(session, [&] { session.post(); });
  if (!faults_) faults_.emplace(options_.faults, rank);
}

/// What goes wrong between this rank and one coordinator ends their conversation alone.
template <class Act>
void ExpertServer::guard(Session& session, Act&& act) {
  if (session.error || session.is_over) return;
  try {
    act();
  } catch (const Error& error) {
    session.error = error;
  }
}

std::optional<ExpertServer::Ended> ExpertServer::serve(Deadline until) {
  while (true) {
    if (std::optional<Ended> ended = take_ended()) return ended;
    if (sessions_.size() > 1) collect(hub_.now());  // what has come meanwhile
    Session* const session = next_message();
    if (session == nullptr) {
      collect(next_deadline(until));
      if (next_message() != nullptr) continue;
      check_silence();
    } else {
      handle(*session);
    }
    for (const auto& other : sessions_) guard(*other, [&] { tend(*other); });
    if (session == nullptr && hub_.now() >= until) return take_ended();
  }
}

std::optional<ExpertServer::Ended> ExpertServer::take_ended() {
  const auto found = std::ranges::find_if(sessions_, [](const auto& session) { return session->is_over || session->error; });
  if (found == sessions_.end()) return std::nullopt;
  const std::unique_ptr<Session> session = std::move(*found);
  sessions_.erase(found);
  window_.forget(session->number);
  trial_.forget(session->number);
  drop_receive(*session);
  return Ended{.source = &session->source, .are_ranks_lost = session->are_ranks_lost, .error = session->error};
}

/// The oldest that does not wait for another; if all wait, none comes any more, and the oldest is it.
ExpertServer::Session* ExpertServer::next_message() const {
  const Deadline now = sessions_.size() > 1 ? hub_.now() : Deadline{};
  Session *oldest = nullptr, *next = nullptr;
  bool may_come = false;
  const auto is_older = [](const Session& a, const Session* b) {
    return b == nullptr || a.message->arrived < b->message->arrived;
  };
  for (const auto& session : sessions_) {
    if (!session->message) {
      may_come = true;
      continue;
    }
    if (is_older(*session, oldest)) oldest = session.get();
    if (is_older(*session, next) && !is_held(*session, now)) next = session.get();
  }
  return next != nullptr || may_come ? next : oldest;
}

/// Whether its rows wait for others of their layer, which have not come.
bool ExpertServer::is_held(const Session& session, Deadline now) const {
  if (!session.held_until || *session.held_until <= now) return false;
  return std::ranges::none_of(sessions_, [&](const auto& other) {
    return other.get() != &session && other->is_rows() && other->message->header.layer == session.message->header.layer;
  });
}

/// When there is something else to do than to wait. Over a group a deadline is the end of all links, and there is nothing else.
Deadline ExpertServer::next_deadline(Deadline until) const {
  Deadline next = until;
  for (const auto& session : sessions_) {
    next = std::min(next, session->last_word + idle_timeout_);
    if (session->message && session->held_until) next = std::min(next, *session->held_until);
    if (session->holder.is_preparing()) next = std::min(next, hub_.now() + kPreparingPeriod);
    if (options_.wants_to_leave && !session->has_asked_to_leave) next = std::min(next, hub_.now() + kLeavePeriod);
  }
  return next;
}

/// Takes what has come, and if nothing has, waits until something does.
void ExpertServer::collect(Deadline deadline) {
  const uint64_t begun = now_ticks();
  while (true) {
    std::vector<PendingOp*> ops;
    std::vector<Session*> sessions;
    for (const auto& session : sessions_) {
      if (session->message || session->error || session->is_over) continue;
      ops.push_back(session->inbox().receive.get());
      sessions.push_back(session.get());
    }
    if (ops.empty()) return;
    std::size_t which = 0;
    try {
      which = hub_.wait_any(ops, deadline);
    } catch (const Error& error) {
      if (hub_.fails_together()) sessions.front()->error = error;
      return;
    }
    guard(*sessions[which], [&] { receive(*sessions[which], begun); });
    if (sessions_.size() == 1) return;
    deadline = hub_.now();
  }
}

void ExpertServer::receive(Session& session, uint64_t begun) {
  Inbox& inbox = session.inbox();
  const std::size_t num_bytes = session.source.wait(*inbox.receive, hub_.now() + idle_timeout_);
  inbox.receive.reset();
  session.last_word = hub_.now();
  const std::span<const std::byte> bytes(inbox.bytes.data(), num_bytes);
  const WireHeader header = blame(session.source, [&] { return read_header_of_any_epoch(bytes); });
  session.message = Message{.header = header, .bytes = bytes, .begun = begun, .arrived = now_ticks()};
  session.held_until.reset();
  if (header.kind == WireKind::kRows && sessions_.size() > 1) note_rows(session, session.last_word);
  session.at = 1 - session.at;
  if (header.kind != WireKind::kShutDown) session.post();  // a goodbye comes at the latest
}

/// Decides whether they wait for those of another coordinator. Nothing has judged the header yet.
void ExpertServer::note_rows(Session& session, Deadline now) {
  constexpr int32_t kMostLayers = 4096;
  constexpr int64_t kMostSteps = int64_t{1} << 60;
  const WireHeader& header = session.message->header;
  if (header.layer < 0 || header.layer >= kMostLayers || header.step < 0 || header.step > kMostSteps) return;
  const bool is_new = window_.note_rows(session.number, header.step, header.layer, header.num_tokens, now);
  if (is_new && header.num_tokens <= MergeWindow::kMostTokens)
    trial_.note_step(session.number, header.step, header.num_tokens, now);
  const bool may_wait =
      options_.wait_to_merge == WaitToMerge::kAlways || (options_.wait_to_merge == WaitToMerge::kAuto && trial_.is_on());
  if (may_wait && header.combine == CombineMode::kExact) session.held_until = window_.hold(session.number, now);
}

void ExpertServer::check_silence() {
  using std::chrono::seconds;
  const Deadline now = hub_.now();
  for (const auto& session : sessions_) {
    guard(*session, [&] {
      if (now < session->last_word + idle_timeout_) return;
      const auto silent = std::chrono::duration_cast<seconds>(now - session->last_word).count();
      throw Error(ErrorCode::kDeadlineExceeded, "rank " + std::to_string(session->source.peer().value) +
                                                    ": has said nothing for " + std::to_string(silent) + " s");
    });
  }
}

/// Between two messages.
void ExpertServer::tend(Session& session) {
  if (session.holder.is_preparing()) {
    if (const std::optional<Preparation> preparation = session.holder.advance()) {
      send(session, encode_preparation(*preparation), kNoticeTag);
    } else if (hub_.now() >= session.last_sign + kSignPeriod) {
      session.last_sign = hub_.now();
      notify(session, WireKind::kKeepAlive);
    }
  }
  if (session.has_asked_to_leave || !options_.wants_to_leave || !options_.wants_to_leave()) return;
  session.has_asked_to_leave = true;
  notify(session, WireKind::kLeave);
}

void ExpertServer::notify(Session& session, WireKind kind) {
  std::array<std::byte, sizeof(WireHeader)> message{};
  write_header({.kind = kind, .map_epoch = session.epoch}, message);
  send(session, message, kNoticeTag);
}

void ExpertServer::handle(Session& session) {
  const WireHeader& header = session.message->header;
  if (header.kind == WireKind::kRows) {
    const std::vector<Session*> together = waiting_with(session);
    if (together.size() > 1) {
      answer_together(together);
    } else {
      guard(session, [&] { answer(session); });
    }
    return;
  }
  guard(session, [&] {
    switch (header.kind) {
      case WireKind::kTrace:
        send(session, blame(session.source, [&] { return session.trace.answer(session.message->bytes); }), kTraceReplyTag);
        break;
      case WireKind::kAssign: assign(session); break;
      case WireKind::kKeepAlive:
        session.epoch = header.map_epoch;
        session.holder.go_over(header.map_epoch);
        break;
      case WireKind::kShutDown:
        session.is_over = true;
        session.are_ranks_lost = header.flags == kRanksLost;
        if (const std::span<const std::byte> reason = session.message->bytes.subspan(sizeof(WireHeader)); !reason.empty())
          throw Error(ErrorCode::kFailedPrecondition,
                      "sent away: " + std::string(reinterpret_cast<const char*>(reason.data()), reason.size()));
        break;
      default:
        throw Error(ErrorCode::kInternal,
                    "rank " + std::to_string(session.source.peer().value) + ": sent an expert worker what it does not take");
    }
  });
  session.message.reset();
}

/// The sessions whose rows of the same layer have come, this one first, as long as they go together.
std::vector<ExpertServer::Session*> ExpertServer::waiting_with(Session& session) {
  std::vector<Session*> together{&session};
  if (sessions_.size() == 1 || session.message->header.combine != CombineMode::kExact) return together;
  int64_t num_tokens = session.message->header.num_tokens;
  for (const auto& other : sessions_) {
    if (other.get() == &session || other->error || !other->is_rows()) continue;
    const WireHeader& header = other->message->header;
    if (header.layer != session.message->header.layer || header.combine != CombineMode::kExact) continue;
    if (header.num_tokens < 0 || num_tokens + header.num_tokens > shelf_.options().token_budget) continue;
    num_tokens += header.num_tokens;
    together.push_back(other.get());
  }
  return together;
}

RequestView ExpertServer::read_rows(Session& session) {
  const WireHeader& header = session.message->header;
  const RequestView request =
      blame(session.source, [&] { return parse_request(session.message->bytes, session.holder.shape()); });
  const auto peer = static_cast<uint32_t>(session.source.peer().value);
  check_context().step = header.step;
  check_context().layer = header.layer;
  check_context().micro_batch = header.micro_batch;
  const Message& message = *session.message;
  record_span(Zone::kWaitDispatch, message.begun, message.arrived, 0, peer);
  record_span(Zone::kDispatchReceive, message.begun, message.arrived, static_cast<uint32_t>(request_bytes(header)), peer);
  session.trace.note_rows(header.step, message.begun, (header.flags & kDetailed) != 0);
  faults_->begin_step(header.step);
  return request;
}

void ExpertServer::answer(Session& session) {
  session.epoch = session.message->header.map_epoch;
  session.holder.go_over(session.epoch);
  const RequestView request = read_rows(session);
  std::span<const std::byte> message;
  {
    const Span span(Zone::kExperts, request.header.num_rows, static_cast<uint32_t>(session.source.peer().value));
    const Deadline start = std::chrono::steady_clock::now();
    message = blame(session.source, [&] { return session.holder.answer(request, session.room()); });
    add_compute_time(session.room(), faults_->end_work(std::chrono::steady_clock::now() - start));
    if (faults_->spoils_replies()) spoil(session.room());
  }
  session.message.reset();
  reply(session, message);
}

/// One product for all; who sent what cannot be read has no part in it.
void ExpertServer::answer_together(std::span<Session* const> sessions) {
  std::vector<RequestView> requests;
  std::vector<Session*> readable;
  int64_t num_rows = 0;
  requests.reserve(sessions.size());  // parts point to them
  for (Session* const session : sessions) {
    guard(*session, [&] {
      session->epoch = session->message->header.map_epoch;
      session->holder.go_over(session->epoch);
      requests.push_back(read_rows(*session));
      readable.push_back(session);
      num_rows += requests.back().header.num_rows;
    });
    session->message.reset();
  }
  if (readable.empty()) return;
  std::vector<MergedReplyWriter::Part> parts;
  for (std::size_t i = 0; i < readable.size(); ++i) {
    const ExpertHolder& holder = readable[i]->holder;
    parts.push_back({.request = &requests[i],
                     .shape = &holder.shape(),
                     .ids = holder.experts(requests[i].header.layer),
                     .bank = &holder.bank(),
                     .reply = readable[i]->room()});
  }
  if (!merged_) {
    const ExpertLoader& loader = shelf_.loader();
    merged_.emplace(loader.dims(), loader.weight_type(), shelf_.compute().stream, readable.front()->holder.reply_options());
  }
  std::vector<std::span<const std::byte>> messages;
  {
    const Span span(Zone::kExperts, static_cast<uint32_t>(num_rows),
                    static_cast<uint32_t>(readable.front()->source.peer().value));
    const Deadline start = std::chrono::steady_clock::now();
    messages = merged_->write(parts);
    const std::chrono::nanoseconds more = faults_->end_work(std::chrono::steady_clock::now() - start);
    for (Session* const session : readable) {
      add_compute_time(session->room(), more);
      if (faults_->spoils_replies()) spoil(session->room());
    }
  }
  for (std::size_t i = 0; i < readable.size(); ++i) guard(*readable[i], [&] { reply(*readable[i], messages[i]); });
}

void ExpertServer::assign(Session& session) {
  Assignment assignment = blame(session.source, [&] {
    return decode_assignment(session.message->bytes, shelf_.num_layers(), shelf_.config().moe.num_experts);
  });
  if (!assignment.experts.empty()) session.holder.prepare(std::move(assignment));
}

void ExpertServer::reply(Session& session, std::span<const std::byte> message) {
  const auto peer = static_cast<uint32_t>(session.source.peer().value);
  const uint64_t sent = now_ticks();
  send(session, message, kReplyTag);
  const uint64_t left = now_ticks();
  window_.note_reply(session.number, hub_.now());
  record_span(Zone::kWaitSend, sent, left, 0, peer);
  record_span(Zone::kCombineSend, sent, left, static_cast<uint32_t>(message.size()), peer);
  run_account_.record_own();  // the coordinator has its rows: nobody waits for these any more
  run_account_.record_others();
}

/// Over a link that has ended nothing is sent: why it has, and the goodbye that may have come first, is still to be received.
void ExpertServer::send(Session& session, std::span<const std::byte> message, int tag) {
  try {
    const std::unique_ptr<PendingOp> pending = session.source.isend(message, tag);
    session.source.wait(*pending, hub_.now() + idle_timeout_);
  } catch (const Error&) {
    if (hub_.fails_together() || !session.source.failure()) throw;
  }
}

}  // namespace ferry
