#include "runtime/trace/trace_session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "profiler/capture_window.h"
#include "profiler/own_cores.h"
#include "profiler/recorder.h"
#include "runtime/base/error.h"
#include "runtime/trace/rank_parts.h"

namespace ferry {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kClockSamplesAtEnds = 64;
constexpr int kClockSamplesBetween = 8;
constexpr std::chrono::seconds kClockPeriod{10};

int64_t now_ns() { return std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now().time_since_epoch()).count(); }

int64_t epoch_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// What a rank that is not there would answer.
TraceReply lost_reply() {
  TraceReply reply;
  std::strcpy(reply.complaint, "lost");
  return reply;
}

}  // namespace

TraceSession::TraceSession(LinkHub* hub, Workers workers, TokenDispatcher& dispatcher, CaptureInfo info, int32_t num_threads,
                           std::chrono::milliseconds timeout)
    : hub_(hub),
      workers_(std::move(workers)),
      dispatcher_(dispatcher),
      info_(std::move(info)),
      num_threads_(num_threads),
      timeout_(timeout),
      marks_(dispatcher.expert_load()) {
  receive_.resize(sizeof(TraceReply) + static_cast<std::size_t>(kTracePieceBytes));
}

/// The ranks of the capture that begins, those of whom nobody is there included.
void TraceSession::gather_peers() {
  peers_.clear();
  if (hub_ == nullptr) return;
  for (Link* link : workers_()) {
    const Rank rank{static_cast<int32_t>(peers_.size()) + 1};
    peers_.push_back({.rank = rank,
                      .link = link,
                      .boot_id = {},
                      .exchanges = {},
                      .bytes = {},
                      .num_bytes = 0,
                      .complaint = link == nullptr ? "not there" : ""});
  }
}

void TraceSession::start(const TracePlan& plan) {
  if (state_ != State::kIdle) {
    throw Error(ErrorCode::kFailedPrecondition, state_ == State::kFetching
                                                    ? "the last capture is still being collected; try again in a moment"
                                                    : "a capture is running already; stop it first");
  }
  if (plan.routing && routing_shape_.layers.empty())
    throw Error(ErrorCode::kFailedPrecondition, "the model has no router whose choices could be recorded");
  plan_ = plan;
  steps_left_ = plan.delay_steps;
  state_ = State::kDelayed;
  if (steps_left_ > 0) return;
  try {
    begin_recording();
  } catch (const Error&) {
    recorder().discard();
    state_ = State::kIdle;
    throw;
  } catch (const std::exception&) {
    give_up();
    throw;
  }
}

void TraceSession::sample_steps(int64_t every) {
  sampling_.emplace(every, hub_, workers_, dispatcher_, info_, num_threads_, timeout_);
}

void TraceSession::begin_step(int64_t step) {
  if (sampling_) sampling_->begin_step(step);
}

void TraceSession::end_step(const StepFacts& facts) {
  if (sampling_) sampling_->end_step(facts, marks_);
}

void TraceSession::settle() {
  if (sampling_) sampling_->settle();
}

void TraceSession::note(const WorkerChange& change, uint64_t ticks) {
  if (sampling_) sampling_->note_change();
  if (changes_.size() == kMaxWorkerChanges) changes_.pop_front();
  changes_.push_back({.ticks = ticks,
                      .rank = change.rank.value,
                      .from = worker_state_name(change.from),
                      .to = worker_state_name(change.to),
                      .reason = change.reason});
}

void TraceSession::set_roofs(double read_bytes_per_s, double flops_per_s) {
  info_.read_bytes_per_s = read_bytes_per_s;
  info_.flops_per_s = flops_per_s;
}

/// A capture without spans: of this run, from now on.
void TraceSession::describe() {
  is_snapshot_ = false;
  capture_ = {.info = info_, .ranks = {}};
  capture_.info.level = TraceLevel::kSteps;
  capture_.info.start_epoch_ns = epoch_ns();
  capture_.info.expert_tokens = tokens_of(dispatcher_.expert_load());
  if (hub_ != nullptr) capture_.info.placement = holders_of(dispatcher_.placement());
}

void TraceSession::begin_recording() {
  describe();
  capture_.info.level = plan_.level;
  gather_peers();
  if (plan_.routing) routing_.emplace(routing_shape_, kRoutingBytesRecorded);
  command_all({.op = TraceCommand::Op::kStart, .level = static_cast<int32_t>(plan_.level), .max_bytes = plan_.max_bytes});
  recorder().start({.level = plan_.level, .max_bytes = plan_.max_bytes});
  sample_clocks(kClockSamplesAtEnds);
  steps_left_ = plan_.num_steps;
  state_ = State::kRecording;
}

void TraceSession::stop() {
  if (state_ != State::kDelayed && state_ != State::kRecording)
    throw Error(ErrorCode::kFailedPrecondition, "no capture is running; start one first");
  try {
    if (state_ == State::kDelayed) begin_recording();
    end_recording();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    give_up();
    complaint_ = error.what();
    throw;
  }
}

void TraceSession::end_recording() {
  sample_clocks(kClockSamplesAtEnds);
  RankCapture own = recorder().stop();
  command_all({.op = TraceCommand::Op::kStop});
  capture_.info.expert_tokens = tokens_since(capture_.info.expert_tokens, dispatcher_.expert_load());
  begin_fetching(std::move(own));
}

void TraceSession::save_snapshot() {
  if (state_ != State::kIdle) throw Error(ErrorCode::kFailedPrecondition, "a capture is running; stop it first");
  try {
    begin_snapshot();
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    give_up();
    throw;
  }
}

void TraceSession::begin_snapshot() {
  describe();
  is_snapshot_ = true;
  gather_peers();
  command_all({.op = TraceCommand::Op::kSnapshot});
  sample_clocks(kClockSamplesAtEnds);
  begin_fetching(recorder().snapshot());
}

void TraceSession::abandon_workers() {
  if (sampling_) sampling_->drop();
  if (state_ == State::kIdle || state_ == State::kDelayed) gather_peers();
  for (Peer& peer : peers_) peer.complaint = "lost";
  if (state_ == State::kRecording) {
    capture_.info.expert_tokens = tokens_since(capture_.info.expert_tokens, dispatcher_.expert_load());
    begin_fetching(recorder().stop());
  } else if (state_ == State::kIdle || state_ == State::kDelayed) {
    describe();
    is_snapshot_ = true;
    begin_fetching(recorder().snapshot());
  }
  if (state_ == State::kFetching) finish();
}

void TraceSession::begin_fetching(RankCapture own) {
  own.rank = 0;
  own.num_threads = num_threads_;
  own.cores = own_cores();
  capture_.ranks.push_back(std::move(own));
  if (routing_) capture_.routing = encode_routing_trace(routing_->take());
  routing_.reset();
  for (Peer& peer : peers_) peer.bytes.clear();
  state_ = State::kFetching;
}

/// A kept step takes its turn.
bool TraceSession::sample(bool ran_step) {
  if (!sampling_) return false;
  try {
    return sampling_->work(ran_step, changes_);
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // nor is a kept step
    sampling_->give_up();
    return false;
  }
}

bool TraceSession::work(bool ran_step) {
  const bool is_sampling = sample(ran_step);
  try {
    return advance(ran_step) || is_sampling;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // a capture is not worth the engine
    give_up();
    complaint_ = error.what();
    return false;
  }
}

/// Ends the capture on all ranks, and frees what they hold of it.
void TraceSession::give_up() {
  recorder().discard();
  routing_.reset();
  state_ = State::kIdle;
  capture_ = {};
  for (Peer& peer : peers_) free_memory(peer);
  for (Peer& peer : peers_) command(peer, {.op = TraceCommand::Op::kDiscard});
}

void TraceSession::free_memory(Peer& peer) {
  std::vector<std::byte>().swap(peer.bytes);
  std::vector<ClockExchange>().swap(peer.exchanges);
}

bool TraceSession::advance(bool ran_step) {
  if (ran_step && !(is_snapshot_ && state_ == State::kFetching)) marks_.note(dispatcher_.expert_load(), Recorder::held_since());
  switch (state_) {
    case State::kIdle: return false;
    case State::kComplete: return false;
    case State::kDelayed:
      if (ran_step && --steps_left_ <= 0) begin_recording();
      return false;
    case State::kRecording:
      if (ran_step && plan_.num_steps > 0 && --steps_left_ <= 0) {
        end_recording();
        return true;
      }
      if (SteadyClock::now() - last_clock_sample_ >= kClockPeriod) sample_clocks(kClockSamplesBetween);
      return false;
    case State::kFetching: break;
  }
  for (Peer& peer : peers_) {
    if (peer.complaint.empty() && peer.bytes.size() < peer.num_bytes) {
      fetch_piece(peer);
      return true;
    }
  }
  finish();
  return false;
}

void TraceSession::fetch_piece(Peer& peer) {
  const TraceReply reply =
      command(peer, {.op = TraceCommand::Op::kFetch, .offset = static_cast<int64_t>(peer.bytes.size())}, &peer.bytes);
  if (reply.complaint[0] != '\0' || reply.num_bytes == 0) peer.complaint = std::string("not handed over: ") + reply.complaint;
}

void TraceSession::finish() {
  for (Peer& peer : peers_) {
    try {
      capture_.ranks.push_back(decode(peer));
    } catch (const std::exception& error) {  // the other ranks' parts are worth having
      peer.complaint = error.what();
      capture_.ranks.push_back(decode(peer));
    }
    free_memory(peer);
  }
  describe_ranks();
  if (is_snapshot_) cut_to_held_steps();
  describe_changes();
  state_ = State::kComplete;
}

/// Who holds experts now, and that there is nothing of those who came meanwhile.
void TraceSession::describe_ranks() {
  capture_.info.expert_rank = first_ranks_of(dispatcher_.placement());
  const auto last_rank = std::ranges::max(dispatcher_.placement().ranks(), {}, &Rank::value).value;
  while (std::ssize(capture_.ranks) <= last_rank) {
    Peer peer{.rank = Rank{static_cast<int32_t>(capture_.ranks.size())}};
    peer.complaint = "came during the capture";
    capture_.ranks.push_back(decode(peer));
  }
  capture_.info.world_size = static_cast<int32_t>(capture_.ranks.size());
}

/// Those of the capture's time.
void TraceSession::describe_changes() {
  const RankCapture& own = capture_.ranks.front();
  for (const WorkerChangeFacts& change : changes_) {
    if (change.ticks >= own.begin && change.ticks <= own.end) capture_.info.worker_changes.push_back(change);
  }
}

/// The counts of experts are known where a mark was set, so the window begins at the first mark that all ranks' rings reach
/// back to.
void TraceSession::cut_to_held_steps() {
  const LoadMarks::Mark mark = marks_.first_from(find_common_begin(capture_));
  const std::optional<CaptureWindow> window = find_window(capture_, mark.ticks);
  for (std::size_t l = 0; l < capture_.info.expert_tokens.size(); ++l) {
    std::vector<int64_t>& tokens = capture_.info.expert_tokens[l];
    for (std::size_t e = 0; e < tokens.size(); ++e) tokens[e] -= window ? mark.tokens[l * tokens.size() + e] : tokens[e];
  }
  if (window) {
    const RankCapture& own = capture_.ranks.front();
    capture_.info.start_epoch_ns -= own.ticks.to_ns(own.end) - window->begin_ns;  // described when the rings were read
    cut_to(*window, capture_);
    return;
  }
  cut_to_nothing(capture_);  // what is older than the ranks' common time says nothing
}

/// The rank's capture on the coordinator's time; without threads if it could not be had.
RankCapture TraceSession::decode(const Peer& peer) const {
  const RankCapture& own = capture_.ranks.front();
  if (!peer.complaint.empty()) return absent_rank(own, peer.rank.value, peer.boot_id, peer.complaint);
  return place_rank(own, peer.rank.value, peer.bytes, peer.boot_id, peer.exchanges);
}

std::optional<Capture> TraceSession::take() {
  if (state_ != State::kComplete) return std::nullopt;
  state_ = State::kIdle;
  return std::exchange(capture_, {});
}

/// Asks the ranks of other hosts for their time; on this host there is nothing to learn.
void TraceSession::sample_clocks(int count) {
  last_clock_sample_ = SteadyClock::now();
  const std::string own_boot_id = peers_.empty() ? "" : kernel_boot_id();
  for (Peer& peer : peers_) {
    if (peer.boot_id == own_boot_id) continue;
    for (int i = 0; i < count && peer.link != nullptr; ++i) {
      const int64_t sent_ns = now_ns();
      const TraceReply reply = command(peer, {.op = TraceCommand::Op::kReadClock});
      if (peer.link == nullptr) break;
      keep_exchange(peer.exchanges, {.sent_ns = sent_ns, .rank_ns = reply.clock_ns, .received_ns = now_ns()});
    }
  }
}

/// What a peer does not answer in time, or not as it should, ends its link.
TraceReply TraceSession::lose(Peer& peer, const Error& error) {
  if (hub_->fails_together()) throw error;
  peer.link->fail(error.what());
  peer.link = nullptr;
  dispatcher_.keep_alive();  // that one may have taken so long that the others would take this rank for lost
  return lost_reply();
}

/// One command and its reply; a piece of the capture that comes along is appended to `piece`.
TraceReply TraceSession::command(Peer& peer, TraceCommand command, std::vector<std::byte>* piece) {
  settle();  // replies come in the order of commands
  command.header.map_epoch = dispatcher_.placement().epoch();
  command.number = ++num_commands_;
  try {
    if (peer.link != nullptr) return exchange(*peer.link, command, piece);
  } catch (const Error& error) {
    return lose(peer, error);
  }
  return lost_reply();
}

/// A command that is under way, and where its reply comes to.
struct TraceSession::Asked {
  std::unique_ptr<TraceCommand> command = std::make_unique<TraceCommand>();
  std::unique_ptr<std::byte[]> reply = std::make_unique<std::byte[]>(sizeof(TraceReply));
  std::unique_ptr<PendingOp> receive = nullptr, send = nullptr;
};

/// A command that is yet to be sent: where there is no memory for one of them, none was.
TraceSession::Asked TraceSession::prepare(TraceCommand command) {
  command.header.map_epoch = dispatcher_.placement().epoch();
  command.number = ++num_commands_;
  Asked asked;
  *asked.command = command;
  return asked;
}

/// A command without a piece to all, who do it at once, and what their replies say of each.
void TraceSession::command_all(const TraceCommand& command) {
  settle();
  const Deadline deadline = hub_ != nullptr ? hub_->now() + timeout_ : Deadline{};
  std::vector<Asked> all;
  for (std::size_t p = 0; p < peers_.size(); ++p) all.push_back(prepare(command));
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    Peer& peer = peers_[p];
    if (peer.link == nullptr) continue;
    try {
      all[p].receive = peer.link->irecv({all[p].reply.get(), sizeof(TraceReply)}, kTraceReplyTag, Fit::kUpTo);
      all[p].send = peer.link->isend(std::as_bytes(std::span(all[p].command.get(), 1)), kRequestTag);
    } catch (const Error& error) {
      lose(peer, error);
    }
  }
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    Peer& peer = peers_[p];
    TraceReply reply = lost_reply();
    try {
      if (peer.link != nullptr) reply = take_reply(*peer.link, all[p], deadline);
    } catch (const Error& error) {
      lose(peer, error);
    }
    if (peer.complaint.empty()) peer.complaint = reply.complaint;
    if (reply.boot_id[0] != '\0') peer.boot_id = reply.boot_id;
    if (command.op != TraceCommand::Op::kStart) peer.num_bytes = static_cast<std::size_t>(reply.num_bytes);
  }
}

TraceReply TraceSession::take_reply(Link& link, Asked& asked, Deadline deadline) {
  const std::size_t num_received = link.wait(*asked.receive, deadline);
  link.wait(*asked.send, deadline);
  return parse_trace_reply({asked.reply.get(), num_received}, *asked.command, link.peer());
}

TraceReply TraceSession::exchange(Link& link, const TraceCommand& command, std::vector<std::byte>* piece) {
  const Deadline deadline = hub_->now() + timeout_;
  const std::unique_ptr<PendingOp> receive = link.irecv(receive_, kTraceReplyTag, Fit::kUpTo);
  const std::unique_ptr<PendingOp> send = link.isend(std::as_bytes(std::span(&command, 1)), kRequestTag);
  const std::size_t num_received = link.wait(*receive, deadline);
  link.wait(*send, deadline);
  const TraceReply reply = parse_trace_reply(std::span(receive_).first(num_received), command, link.peer());
  if (piece != nullptr) {
    const auto bytes = std::span(receive_).subspan(sizeof reply, static_cast<std::size_t>(reply.num_bytes));
    piece->insert(piece->end(), bytes.begin(), bytes.end());
  }
  return reply;
}

}  // namespace ferry
