#include <algorithm>
#include <string>
#include <utility>

#include "moe/remote/finite_rows.h"
#include "moe/remote/remote_token_dispatcher.h"
#include "profiler/span.h"
#include "runtime/base/error.h"

// How a dispatcher gets all rows of a layer back, whoever is late or lost.

namespace ferry {
namespace {

std::string rank_name(Rank rank) { return "rank " + std::to_string(rank.value); }

std::string in_ms(std::chrono::nanoseconds time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) + " ms";
}

}  // namespace

/// Gets all rows of the dispatch and counts what that cost.
void RemoteTokenDispatcher::await_all(Flight& flight) {
  using Seconds = std::chrono::duration<double>;
  const Deadline start = hub_.now();
  cover_lost(flight);
  compute_here(flight, flight.waves.front());
  while (!flight.is_complete()) await_some(flight);
  const Deadline end = hub_.now();
  double slowest_s = 0;
  for (const Exchange& exchange : flight.waves.front().exchanges)
    slowest_s = std::max(slowest_s, static_cast<double>(exchange.header.compute_ns) * 1e-9);
  const double wait_s = Seconds(end - start).count(), under_way_s = Seconds(end - flight.posted).count() - slowest_s;
  if (flight.args.micro_batch == 0) ++transport_.layers;
  transport_.wait_s += wait_s;
  transport_.transport_s += std::clamp(under_way_s, 0.0, wait_s);
}

/// Takes the next answer, to this dispatch or an earlier one, or does something about those that do not come.
void RemoteTokenDispatcher::await_some(Flight& flight) {
  awaited_.clear();
  ops_.clear();
  const auto add = [&](Exchange& exchange, Late* late) {
    if (exchange.state != State::kOpen || !exchange.receive) return;
    awaited_.push_back({&exchange, late});
    ops_.push_back(exchange.receive.get());
  };
  for (Wave& wave : flight.waves) {
    for (Exchange& exchange : wave.exchanges) add(exchange, nullptr);
  }
  for (const auto& late : late_) {
    for (Exchange& exchange : late->exchanges) add(exchange, late.get());
  }
  FERRY_CHECK(!ops_.empty()) << " of layer " << flight.args.layer << " rows are missing that nobody was asked for";
  const uint64_t begun = now_ticks();
  std::size_t which = 0;
  try {
    which = hub_.wait_any(ops_, next_deadline(flight));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDeadlineExceeded || hub_.fails_together()) throw;
    return check_silence(flight, begun);
  }
  const Awaited got = awaited_[which];
  if (got.late != nullptr) return collect_late(*got.late, *got.exchange, begun);
  finish(*got.exchange, begun);
  end_doubt(got.exchange->worker);  // its own answer may come before the one of whoever covers it
  cover_lost(flight);
}

/// How long an exchange may take before something is done about it.
std::chrono::nanoseconds RemoteTokenDispatcher::patience_with(const Exchange& exchange) const {
  const WorkerPace& pace = seats_[exchange.worker].pace;
  if (hub_.fails_together() || exchange.cover >= 0 || exchange.is_given_up) return options_.timeout;
  const Patience& patience = options_.patience;
  if (!pace.knows()) {
    const auto time = exchange.is_alone ? patience.at_first + patience.at_least_alone : patience.at_first;
    return std::min<std::chrono::nanoseconds>(time, options_.timeout);
  }
  const std::chrono::nanoseconds least = exchange.is_alone ? patience.at_least_alone : patience.at_least;
  return std::min<std::chrono::nanoseconds>(std::max(least, patience.factor * pace.usual(exchange.cost)), options_.timeout);
}

Deadline RemoteTokenDispatcher::next_deadline(const Flight& flight) const {
  Deadline next = Deadline::max();
  for (const Wave& wave : flight.waves) {
    for (const Exchange& exchange : wave.exchanges) {
      if (exchange.state == State::kOpen && exchange.receive) next = std::min(next, exchange.posted + patience_with(exchange));
    }
  }
  return next == Deadline::max() ? hub_.now() + options_.timeout : next;
}

/// Gives the backend what a worker answered.
void RemoteTokenDispatcher::take_rows(Exchange& exchange) {
  Mirror<std::byte>& replies = exchange.buffers->replies;
  exchange.rows = lay_out_reply(exchange.header, exchange.reply);
  if (!stream_.is_on_host()) exchange.is_finite = are_finite(exchange.rows, stream_.pool());
  replies.send(exchange.reply.data() - replies.host(), std::ssize(exchange.reply));
  const Address<std::byte> first = replies.device() + (exchange.rows.data - replies.host());
  exchange.rows.data = first.raw();
  exchange.rows.space = first.space();
}

/// Takes an answer that is there, or finds that its worker is lost. `begun`: ticks, when it began to be waited for.
void RemoteTokenDispatcher::finish(Exchange& exchange, uint64_t begun) {
  WorkerSeats::Seat& seat = seats_[exchange.worker];
  const auto peer = static_cast<uint32_t>(seat.rank.value);
  bool is_there = false;
  try {
    const Deadline deadline = hub_.now() + options_.timeout;
    seat.link->wait(*exchange.receive, deadline);
    is_there = true;
    const uint64_t arrived = now_ticks();
    record_span(Zone::kWaitCombine, begun, arrived, 0, peer);
    record_span(Zone::kCombineReceive, exchange.posted_ticks, arrived, static_cast<uint32_t>(exchange.reply.size()), peer);
    seat.link->wait(*exchange.send, deadline);  // it has long left
    const uint64_t left = now_ticks();
    record_span(Zone::kDispatchSend, exchange.posted_ticks, left, static_cast<uint32_t>(exchange.request.size()), peer);
    record_value_at(left, Zone::kRankRows, exchange.header.num_rows, peer);
    const WireHeader reply = parse_reply(exchange.reply, exchange.header, seat.rank);
    exchange.header.compute_ns = reply.compute_ns;
    take_rows(exchange);
    exchange.state = State::kDone;
    seat.num_rows += reply.num_rows;
    answers_.all += reply.num_rows > 0 ? 1 : 0;
    answers_.merged += (reply.flags & kMerged) != 0 ? 1 : 0;
    const std::chrono::nanoseconds computed(reply.compute_ns);
    if (exchange.cover < 0 && seat.pace.knows() && (reply.flags & kMerged) == 0) {
      const double speed = speeds_[static_cast<std::size_t>(exchange.worker)];
      cost_fit_.learn(exchange.num_touched, exchange.header.num_rows, computed, speed);
    }
    if (exchange.cover < 0) seat.pace.learn(exchange.cost, hub_.now() - exchange.posted, computed);  // a stall is unusual
  } catch (const Error& error) {
    if (!is_there) record_span(Zone::kWaitCombine, begun, now_ticks(), 0, peer);
    exchange.state = State::kLost;
    lose(exchange.worker, error);
  }
  exchange.receive.reset();
  exchange.send.reset();
}

/// Nobody answered in time: those beyond the timeout are lost, the others in doubt. `begun`: ticks, when that wait began, which
/// is put down to the first of them.
void RemoteTokenDispatcher::check_silence(Flight& flight, uint64_t begun) {
  const Deadline now = hub_.now();
  for (std::size_t i = 0; i < flight.waves.size(); ++i) {  // grows meanwhile
    for (Exchange& exchange : flight.waves[i].exchanges) {
      if (exchange.state != State::kOpen || !exchange.receive || now < exchange.posted + patience_with(exchange)) continue;
      const Rank rank = seats_[exchange.worker].rank;
      if (begun != 0)
        record_span(Zone::kWaitCombine, std::exchange(begun, 0), now_ticks(), 0, static_cast<uint32_t>(rank.value));
      if (now >= exchange.posted + options_.timeout) {
        exchange.state = State::kLost;
        lose(exchange.worker, Error(ErrorCode::kDeadlineExceeded, rank_name(rank) + ": silent for " +
                                                                      in_ms(now - exchange.posted) + ", which is what it has"));
      } else if (exchange.is_alone || others_hold(exchange)) {
        seats_.suspect(exchange.worker, rank_name(rank) + ": has not answered for " + in_ms(now - exchange.posted));
        cover(flight, flight.waves[i], exchange);
      } else {
        exchange.is_alone = orphans_ != nullptr;
        exchange.is_given_up = orphans_ == nullptr;
      }
    }
  }
  cover_lost(flight);
}

/// Whether healthy others hold every expert of which it was sent rows.
bool RemoteTokenDispatcher::others_hold(const Exchange& exchange) const {
  const int64_t layer = exchange.header.layer;
  const uint64_t others = seats_.healthy() & ~(uint64_t{1} << exchange.worker);
  const std::span<const PhysicalExpertId> experts = placement_.layer(layer).experts_of(exchange.worker);
  const auto* counts = reinterpret_cast<const int32_t*>(exchange.request.data() + sizeof(WireHeader));
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const auto logical = static_cast<std::size_t>(placement_.layer(layer).logical_of(experts[e]).value);
    if (counts[e] > 0 && (placement_.holders(layer)[logical] & others) == 0) return false;
  }
  return true;
}

void RemoteTokenDispatcher::lose(int32_t worker, const Error& error) {
  if (hub_.fails_together()) throw Error(error);
  seats_.lose(worker, error);
}

/// Asks others for the rows of an exchange.
void RemoteTokenDispatcher::cover(Flight& flight, Wave& wave, Exchange& exchange) {
  const std::vector<int32_t> experts = flight.experts_of(wave, exchange);
  const auto attempt = static_cast<uint8_t>(std::min(exchange.header.attempt + 1, 255));
  Wave& other = flight.waves.emplace_back();
  other.of = &exchange;
  other.of_wave = &wave;
  plan_wave(flight, other, experts, attempt);
  exchange.cover = static_cast<int>(flight.waves.size()) - 1;
  count_cover(other);
  send_wave(flight, other);
  compute_here(flight, other);
}

/// Rows that other workers are asked for.
void RemoteTokenDispatcher::count_cover(const Wave& wave) {
  for (const Exchange& exchange : wave.exchanges) {
    if (exchange.state != State::kOpen || exchange.worker == here()) continue;
    covered_.by_workers += exchange.header.num_rows;
    record_value(Zone::kCoveredRows, exchange.header.num_rows, static_cast<uint32_t>(seats_[exchange.worker].rank.value));
  }
}

void RemoteTokenDispatcher::cover_lost(Flight& flight) {
  for (std::size_t i = 0; i < flight.waves.size(); ++i) {  // grows meanwhile
    for (Exchange& exchange : flight.waves[i].exchanges) {
      if (exchange.state != State::kLost || exchange.cover >= 0) continue;
      if (exchange.header.num_rows == 0) {
        exchange.state = State::kNone;
      } else if (flight.waves[i].is_needed()) {
        cover(flight, flight.waves[i], exchange);
      }
    }
  }
}

/// The dispatch is over; what is still under way keeps its buffers.
void RemoteTokenDispatcher::close(Flight& flight) {
  Late late;
  for (Wave& wave : flight.waves) {
    for (Exchange& exchange : wave.exchanges) {
      const bool is_worker = exchange.worker < here();
      if (exchange.state == State::kDone && is_worker) {
        load_.add_to_rank(flight.args.layer, exchange.worker, exchange.header.num_rows);
        transport_.bytes_out += std::ssize(exchange.request);
        transport_.bytes_in += std::ssize(exchange.reply);
      }
      if (exchange.state != State::kOpen || !is_worker) continue;
      ++seats_[exchange.worker].num_late;
      late.exchanges.push_back(std::exchange(exchange, Exchange{}));
    }
  }
  if (!late.exchanges.empty()) {
    for (Wave& wave : flight.waves) late.buffers.push_back(std::move(wave.buffers));
    late_.push_back(std::make_unique<Late>(std::move(late)));
    size_buffers();
  }
  if (flight.waves.size() > 1) stream_.wait(stream_.submit());  // a device may still read the rows of those that go
  flight.waves.resize(1);
  flight.is_open = false;
}

/// Of a worker that has just answered, unless it owes another answer.
void RemoteTokenDispatcher::end_doubt(int32_t worker) {
  const WorkerSeats::Seat& seat = seats_[worker];
  if (seat.num_late == 0 && seat.state == WorkerState::kSuspect) seats_.clear(worker);
}

/// An answer that nobody waits for any more has come, or never will.
void RemoteTokenDispatcher::collect_late(Late& late, Exchange& exchange, uint64_t begun) {
  const int32_t worker = exchange.worker;
  finish(exchange, begun);
  WorkerSeats::Seat& seat = seats_[worker];
  --seat.num_late;
  end_doubt(worker);
  std::erase_if(late.exchanges, [](const Exchange& other) { return other.state != State::kOpen; });
  std::erase_if(late_, [](const auto& other) { return other->exchanges.empty(); });
}

/// Between steps: takes what has come late, and then loses who is beyond the timeout: nobody may have looked for so long.
void RemoteTokenDispatcher::check_late() {
  while (!late_.empty()) {
    awaited_.clear();
    ops_.clear();
    for (const auto& late : late_) {
      for (Exchange& exchange : late->exchanges) {
        awaited_.push_back({&exchange, late.get()});
        ops_.push_back(exchange.receive.get());
      }
    }
    const uint64_t begun = now_ticks();
    std::size_t which = 0;
    try {
      which = hub_.wait_any(ops_, hub_.now());
    } catch (const Error&) {  // none of them
      if (!lose_late()) return;
      continue;
    }
    collect_late(*awaited_[which].late, *awaited_[which].exchange, begun);
  }
}

/// Loses those who owe an answer for longer than the timeout. False if nobody does.
bool RemoteTokenDispatcher::lose_late() {
  bool has_lost = false;
  for (const Awaited& awaited : awaited_) {
    const Exchange& exchange = *awaited.exchange;
    const std::chrono::nanoseconds silent = hub_.now() - exchange.posted;
    if (silent < options_.timeout) continue;
    has_lost = true;
    lose(exchange.worker,
         Error(ErrorCode::kDeadlineExceeded, rank_name(seats_[exchange.worker].rank) + ": silent for " + in_ms(silent)));
  }
  return has_lost;
}

void RemoteTokenDispatcher::keep_alive() {
  if (!hub_.fails_together()) {
    seats_.look_at_links();
    check_late();
  }
  send_control(WireKind::kKeepAlive);
}

void RemoteTokenDispatcher::shut_down() { send_control(WireKind::kShutDown); }

/// To all that are there. Who is in doubt may not read it.
void RemoteTokenDispatcher::send_control(WireKind kind) {
  const bool is_last = kind == WireKind::kShutDown;
  std::vector<std::vector<std::byte>> messages(static_cast<std::size_t>(here()));
  std::vector<std::unique_ptr<PendingOp>> sends(messages.size());
  const auto each = [&](auto&& act) {
    for (int32_t w = 0; w < here(); ++w) {
      WorkerSeats::Seat& seat = seats_[w];
      if (!WorkerSeats::is_there(seat)) continue;
      try {
        act(seat, static_cast<std::size_t>(w));
      } catch (const Error& error) {
        if (WorkerSeats::is_healthy(seat) || hub_.fails_together()) lose(w, error);
      }
    }
  };
  each([&](WorkerSeats::Seat& seat, std::size_t w) {
    const WireHeader header{.kind = kind,
                            .map_epoch = placement_.epoch(),
                            .source = options_.source,
                            .flags = is_last && seats_.misses_some() ? kRanksLost : uint8_t{0},
                            .sequence = seat.num_requests++,
                            .step = step_};
    messages[w].resize(sizeof(WireHeader));
    write_header(header, messages[w]);
    sends[w] = seat.link->isend(messages[w], kRequestTag);
  });
  each([&](WorkerSeats::Seat& seat, std::size_t w) {
    constexpr std::chrono::milliseconds kDoubtful{50};
    const bool is_healthy = WorkerSeats::is_healthy(seat);
    if (sends[w]) seat.link->wait(*sends[w], hub_.now() + (is_healthy ? options_.timeout : kDoubtful));
  });
}

}  // namespace ferry
