#include "moe/remote/remote_token_dispatcher.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "profiler/span.h"
#include "runtime/base/error.h"
#include "runtime/base/memory_use.h"

// This file sends requests and adds up replies. remote_waiting.cpp has the time in between, and remote_verdict.cpp handles
// replies that are not finite.

namespace ferry {
namespace {

constexpr int64_t kStepsToSpeeds = 16;  // between two looks at how fast the workers are

int64_t aligned(int64_t bytes) { return (bytes + kWireAlignment - 1) / kWireAlignment * kWireAlignment; }

void fill_request(const RankRows& rows, const MatmulRows& tokens, const Exchange& exchange) {
  write_header(exchange.header, exchange.request);
  const RequestParts parts = lay_out_request(exchange.header, exchange.request);
  std::ranges::copy(rows.expert_counts, parts.expert_counts);
  std::ranges::copy(rows.row_token, parts.row_token);
  const auto row_bytes = static_cast<std::size_t>(tokens.x.cols * dtype_bytes(tokens.x.dtype));
  for (std::size_t i = 0; i < rows.token_idx.size(); ++i) {
    std::memcpy(parts.tokens.row_bytes(static_cast<int64_t>(i)), tokens.x.row_bytes(rows.token_idx[i]), row_bytes);
    if (parts.scales != nullptr) parts.scales[i] = tokens.scales.host()[rows.token_idx[i]];
  }
}

/// The place of an expert among those of a worker that holds it.
int32_t local_idx_on(const ExpertMap& map, int32_t expert, int32_t worker) {
  for (const PhysicalExpertId copy : map.copies_of({expert})) {
    if (map.rank_idx_of(copy) == worker) return map.local_idx_of(copy);
  }
  return -1;
}

}  // namespace

RemoteTokenDispatcher::RemoteTokenDispatcher(LinkHub& hub, ExpertPlacement placement, const std::vector<Link*>& links,
                                             OrphanExperts* orphans, Stream& stream, const Options& options,
                                             OnWorkerChange on_change)
    : hub_(hub),
      stream_(stream),
      orphans_(orphans),
      options_(options),
      placement_(std::move(placement)),
      seats_(std::move(on_change)),
      load_(placement_.num_layers(), placement_.num_experts(), std::ssize(placement_.ranks())),
      cost_fit_(options.cost),
      cost_(options.cost) {
  const int64_t max_rows = options.max_tokens * options.top_k;
  for (Flight& flight : flights_) flight.waves.emplace_back();
  slot_rows_.resize(static_cast<std::size_t>(max_rows));
  if (options.combine == CombineMode::kFast)
    ones_ = Array<float>(stream.memory(), std::vector<float>(static_cast<std::size_t>(max_rows), 1.0F));
  tokens_ = HostRows(stream, options.row_dtype, options.max_tokens, row_cols(options.row_dtype, options.hidden_dim));
  scales_ = HostRows(stream, DType::kF32, options.max_tokens, 1);
  expert_rows_.resize(static_cast<std::size_t>(placement_.num_experts()));
  owners_.resize(expert_rows_.size());
  assign(std::move(placement_), links);
}

RemoteTokenDispatcher::~RemoteTokenDispatcher() {
  if (!hub_.fails_together()) return;
  for (Flight& flight : flights_) {
    for (Exchange& exchange : flight.waves.front().exchanges) {
      if (exchange.state == State::kOpen && exchange.receive) seats_[exchange.worker].link->fail("its answer is not awaited");
    }
  }
}

void RemoteTokenDispatcher::assign(ExpertPlacement placement, const std::vector<Link*>& links) {
  FERRY_CHECK_EQ(links.size(), placement.ranks().size());
  for (int32_t w = 0; w < here(); ++w) {
    if (seats_[w].link != links[static_cast<std::size_t>(w)]) drop_late(w);
  }
  placement_ = std::move(placement);
  seats_.assign(placement_.ranks(), links);
  num_local_.assign(links.size() + 1, 0);
  speeds_ = seats_.speeds();
  chooser_.emplace(placement_.num_experts(), speeds_, cost_);
  workers_per_token_ = std::min(options_.top_k, std::ssize(links));
  size_buffers();
}

void RemoteTokenDispatcher::retire(int32_t worker, const std::string& reason) {
  drop_late(worker);
  seats_.retire(worker, reason);
}

/// Every row costs four bytes of index, and four of weight; a token goes to as many workers as have experts of it.
RemoteTokenDispatcher::BufferSizes RemoteTokenDispatcher::buffer_sizes(int64_t max_sent, int64_t max_rows) const {
  int64_t most_experts = 0;  // of a layer, copies counted
  for (int64_t l = 0; l < placement_.num_layers(); ++l)
    most_experts = std::max(most_experts, placement_.layer(l).num_physical());
  const bool is_fast = options_.combine == CombineMode::kFast;
  const int64_t row_bytes = options_.hidden_dim * dtype_bytes(options_.dtype);
  const int64_t token_bytes =
      options_.row_dtype == DType::kI8 ? quantized_cols(options_.hidden_dim) + static_cast<int64_t>(sizeof(float)) : row_bytes;
  const int64_t framing = here() * (static_cast<int64_t>(sizeof(WireHeader)) + 2 * kWireAlignment) +
                          4 * (most_experts + (is_fast ? 2 : 1) * max_rows);
  return {.requests = framing + max_sent * token_bytes,
          .replies = framing + (is_fast ? max_sent : max_rows) * row_bytes + here() * kWireAlignment};
}

std::unique_ptr<ExchangeBuffers> RemoteTokenDispatcher::make_buffers(const BufferSizes& sizes) const {
  const MemoryUseScope use(MemoryUse::kExchange);
  auto buffers = std::make_unique<ExchangeBuffers>();
  buffers->requests = AlignedBuffer(static_cast<std::size_t>(sizes.requests));
  buffers->replies = Mirror<std::byte>(stream_, sizes.replies);
  return buffers;
}

/// Those that are large enough stay: to get others takes as long as many steps.
void RemoteTokenDispatcher::size_buffers() {
  const BufferSizes sizes = buffer_sizes(options_.max_tokens * workers_per_token_, options_.max_tokens * options_.top_k);
  for (Flight& flight : flights_) {
    std::unique_ptr<ExchangeBuffers>& buffers = flight.waves.front().buffers;
    if (buffers && static_cast<int64_t>(buffers->requests.size()) >= sizes.requests && buffers->replies.size() >= sizes.replies)
      continue;
    stream_.wait(stream_.submit());  // a device may still read what goes
    buffers = make_buffers(sizes);
  }
}

/// Of a worker whose link goes nothing comes any more.
void RemoteTokenDispatcher::drop_late(int32_t worker) {
  for (const auto& late : late_) {
    std::erase_if(late->exchanges, [worker](const Exchange& exchange) { return exchange.worker == worker; });
  }
  std::erase_if(late_, [](const auto& late) { return late->exchanges.empty(); });
}

void RemoteTokenDispatcher::begin_step(int64_t step) {
  step_ = step;
  if (hub_.fails_together()) return;
  seats_.look_at_links();
  check_late();
  if (++steps_to_speeds_ % kStepsToSpeeds == 0) learn_costs();
}

/// From now on work is given out by how fast workers have been, and by what experts have cost.
void RemoteTokenDispatcher::learn_costs() {
  std::vector<double> speeds = seats_.speeds();
  const ExpertCost& cost = cost_fit_.fit();
  if (speeds == speeds_ && cost == cost_) return;
  speeds_ = std::move(speeds);
  cost_ = cost;
  chooser_.emplace(placement_.num_experts(), speeds_, cost_);
}

/// Fills owners_ of the experts that have rows, and num_local_. Who is suspected is asked where nobody else can be.
void RemoteTokenDispatcher::choose_owners(int64_t layer, std::span<const int32_t> topk_idx, uint64_t live) {
  const ExpertMap& map = placement_.layer(layer);
  for (int32_t w = 0; w < here(); ++w) num_local_[static_cast<std::size_t>(w)] = static_cast<int32_t>(map.experts_of(w).size());
  num_local_.back() = static_cast<int32_t>(map.num_logical());
  std::ranges::fill(expert_rows_, 0);
  for (const int32_t expert : topk_idx) {
    if (expert == kNoExpert) continue;
    FERRY_CHECK(expert >= 0 && expert < std::ssize(expert_rows_)) << " expert " << expert;
    ++expert_rows_[static_cast<std::size_t>(expert)];
  }
  const ExpertChoice& choice = chooser_->choose(expert_rows_, placement_.holders(layer), live);
  for (int32_t e = 0; e < map.num_logical(); ++e) {
    const auto at = static_cast<std::size_t>(e);
    int32_t worker = choice.worker[at];
    if (worker == ExpertChoice::kUntouched) continue;
    if (worker == ExpertChoice::kNoHolder) {
      worker = here();
      if (orphans_ == nullptr) worker = seats_.require_holder(placement_.holders(layer)[at], e);
    }
    owners_[at] = {worker, worker == here() ? e : local_idx_on(map, e, worker)};
  }
}

void RemoteTokenDispatcher::plan_wave(Flight& flight, Wave& wave, std::span<const int32_t> topk_idx, uint8_t attempt) {
  const Span span(Zone::kInitRouting, flight.args.tokens.x.rows);
  choose_owners(flight.args.layer, topk_idx, seats_.healthy() & ~accused_);
  plan_dispatch(topk_idx, flight.args.top_k, owners_, num_local_, wave.plan);
  lay_out(flight, wave, attempt);
  if (options_.combine == CombineMode::kFast) add_weights(flight, wave);
}

void RemoteTokenDispatcher::lay_out(Flight& flight, Wave& wave, uint8_t attempt) {
  wave.exchanges.resize(num_local_.size());
  int64_t num_sent = 0, num_rows = 0;
  for (const RankRows& rows : wave.plan.ranks) {
    num_sent += std::ssize(rows.token_idx);
    num_rows += std::ssize(rows.row_token);
  }
  if (!wave.buffers) wave.buffers = make_buffers(buffer_sizes(num_sent, num_rows));
  std::byte* request = wave.buffers->requests.data();
  std::byte* reply = wave.buffers->replies.host();
  const auto place = [](std::byte*& next, int64_t bytes) {
    const std::span<std::byte> placed(next, static_cast<std::size_t>(bytes));
    next += aligned(bytes);
    return placed;
  };
  for (std::size_t w = 0; w < wave.exchanges.size(); ++w) {
    const RankRows& rows = wave.plan.ranks[w];
    Exchange& exchange = wave.exchanges[w];
    exchange = Exchange{.worker = static_cast<int32_t>(w)};
    const bool is_here = exchange.worker == here();
    const bool greets = attempt == 0 && !is_here && WorkerSeats::is_healthy(seats_[exchange.worker]);
    if (rows.row_token.empty() && !greets) continue;
    exchange.state = State::kOpen;
    exchange.header = {.map_epoch = placement_.epoch(),
                       .source = options_.source,
                       .attempt = attempt,
                       .flags = is_traced(Zone::kExperts) ? kDetailed : uint8_t{0},
                       .sequence = is_here ? 0 : seats_[exchange.worker].num_requests++,
                       .step = step_,
                       .layer = static_cast<int32_t>(flight.args.layer),
                       .num_tokens = static_cast<int32_t>(rows.token_idx.size()),
                       .num_rows = static_cast<int32_t>(rows.row_token.size()),
                       .num_local_experts = static_cast<int32_t>(rows.expert_counts.size()),
                       .hidden_dim = static_cast<int32_t>(options_.hidden_dim),
                       .dtype = options_.dtype,
                       .token_dtype = options_.row_dtype,
                       .combine = options_.combine,
                       .micro_batch = flight.args.micro_batch};
    if (is_here) continue;
    for (const int32_t count : rows.expert_counts) {
      exchange.cost += options_.cost.of(count);
      exchange.num_touched += count > 0 ? 1 : 0;
    }
    exchange.buffers = wave.buffers.get();
    exchange.request = place(request, request_bytes(exchange.header));
    exchange.reply = place(reply, reply_bytes(exchange.header));
  }
  FERRY_CHECK_LE(request, wave.buffers->requests.data() + wave.buffers->requests.size());
  FERRY_CHECK_LE(reply, wave.buffers->replies.host() + wave.buffers->replies.size());
}

/// Tells the workers by how much each row counts.
void RemoteTokenDispatcher::add_weights(const Flight& flight, const Wave& wave) {
  for (std::size_t i = 0; i < wave.plan.slots.size(); ++i) {
    const SlotRow at = wave.plan.slots[i];
    if (at.rank_idx < 0 || at.rank_idx == here()) continue;
    const Exchange& exchange = wave.exchanges[static_cast<std::size_t>(at.rank_idx)];
    lay_out_request(exchange.header, exchange.request).row_weights[at.row] = flight.args.topk_weights[i];
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

void RemoteTokenDispatcher::send_wave(Flight& flight, Wave& wave) {
  const MatmulRows tokens = look_at(flight.args.tokens);
  const SpanChain chain;
  for (std::size_t w = 0; w + 1 < wave.exchanges.size(); ++w) {
    Exchange& exchange = wave.exchanges[w];
    if (exchange.state != State::kOpen) continue;
    const Span span(Zone::kDispatch, exchange.header.num_rows, seats_[exchange.worker].rank.value);
    fill_request(wave.plan.ranks[w], tokens, exchange);
    post(exchange);
  }
}

void RemoteTokenDispatcher::post(Exchange& exchange) {
  exchange.posted_ticks = now_ticks();
  exchange.posted = hub_.now();
  try {
    Link& link = *seats_[exchange.worker].link;
    exchange.receive = link.irecv(exchange.reply, kReplyTag, Fit::kExact);
    exchange.send = link.isend(exchange.request, kRequestTag);
  } catch (const Error& error) {
    exchange.state = State::kLost;
    lose(exchange.worker, error);
  }
}

DispatchHandle RemoteTokenDispatcher::dispatch(const DispatchArgs& args) {
  FERRY_CHECK(args.tokens.x.dtype == options_.row_dtype);
  FERRY_CHECK_EQ(args.tokens.x.cols, row_cols(options_.row_dtype, options_.hidden_dim));
  FERRY_CHECK_LE(args.tokens.x.rows, options_.max_tokens);
  FERRY_CHECK_EQ(args.topk_idx.size(), args.topk_weights.size());
  const int slot = flights_[0].is_open ? 1 : 0;
  Flight& flight = flights_[static_cast<std::size_t>(slot)];
  FERRY_CHECK(!flight.is_open) << "more than " << kMaxInFlight << " dispatches in flight";
  flight.is_open = true;
  flight.args = args;
  flight.topk_idx.assign(args.topk_idx.begin(), args.topk_idx.end());
  load_.record(args.layer, args.topk_idx);
  Wave& wave = flight.waves.front();
  {
    const SpanChain chain;
    plan_wave(flight, wave, flight.topk_idx, 0);
    send_wave(flight, wave);
  }
  flight.posted = hub_.now();
  return DispatchHandle(slot);
}

/// What nobody else answers for. Of a fast combine it is added up by tokens, as a worker does.
void RemoteTokenDispatcher::compute_here(Flight& flight, Wave& wave) {
  Exchange& exchange = wave.exchanges.back();
  if (exchange.state != State::kOpen) return;
  const RankRows& plan = wave.plan.ranks.back();
  const auto num_rows = std::ssize(plan.row_token);
  std::vector<int32_t> row_token;  // of the whole batch
  for (const int32_t position : plan.row_token) row_token.push_back(plan.token_idx[static_cast<std::size_t>(position)]);
  const Span span(Zone::kExperts, num_rows);
  const uint64_t begun = now_ticks();
  covered_.by_coordinator += num_rows;
  wave.here = Matrix(stream_.memory(), options_.dtype, num_rows, options_.hidden_dim);
  orphans_->run(flight.args.layer, {.tokens = flight.args.tokens, .row_token = row_token, .expert_counts = plan.expert_counts},
                wave.here.view());
  record_counted(Zone::kCoveredRows, begun, num_rows);
  exchange.rows = wave.here.view();
  exchange.state = State::kDone;
  if (options_.combine == CombineMode::kExact) return;
  std::vector<float> weights(static_cast<std::size_t>(num_rows));
  for (std::size_t i = 0; i < wave.plan.slots.size(); ++i) {
    const SlotRow at = wave.plan.slots[i];
    if (at.rank_idx == here()) weights[static_cast<std::size_t>(at.row)] = flight.args.topk_weights[i];
  }
  if (!adder_) adder_.emplace(stream_, options_.max_tokens, options_.top_k);
  Matrix sums(stream_.memory(), options_.dtype, std::ssize(plan.token_idx), options_.hidden_dim);
  adder_->add_up(plan.row_token, weights, wave.here.view(), sums.view());
  stream_.wait(stream_.submit());  // a device may still read the rows that go
  wave.here = std::move(sums);
  exchange.rows = wave.here.view();
}

void RemoteTokenDispatcher::combine(DispatchHandle handle, MatrixView out) {
  Flight& flight = flights_.at(static_cast<std::size_t>(handle.release()));
  FERRY_CHECK(flight.is_open);
  await_all(flight);
  add_up(flight, out);
  if (!is_sum_finite(flight, out) && replace_bad_rows(flight)) add_up(flight, out);
  close(flight);
}

void RemoteTokenDispatcher::add_up(Flight& flight, MatrixView out) {
  if (options_.combine == CombineMode::kExact) {
    add_experts(flight, out);
  } else {
    add_workers(flight, out);
  }
}

/// Sums a token's rows in slot order.
void RemoteTokenDispatcher::add_experts(Flight& flight, MatrixView out) {
  const std::size_t num_slots = flight.topk_idx.size();
  for (std::size_t i = 0; i < num_slots; ++i) {
    const FoundRow found = flight.find(i);
    slot_rows_[i] = found.exchange->rows.row_address(found.row);
  }
  ferry::combine(stream_, {.slot_rows = std::span(slot_rows_).first(num_slots),
                           .slot_weights = flight.args.slot_weights,
                           .num_slots = flight.args.top_k,
                           .out = out});
}

/// Sums what the workers have added up for a token, in the order of waves and ranks.
void RemoteTokenDispatcher::add_workers(Flight& flight, MatrixView out) {
  const auto width = static_cast<std::size_t>(flight.waves.size() == 1 ? workers_per_token_ : options_.top_k);
  const std::span<const std::byte*> slot_rows = std::span(slot_rows_).first(static_cast<std::size_t>(out.rows) * width);
  std::ranges::fill(slot_rows, nullptr);
  for (const Wave& wave : flight.waves) {
    for (std::size_t w = 0; w < wave.exchanges.size(); ++w) {
      const Exchange& exchange = wave.exchanges[w];
      if (!flight.counts(wave, exchange)) continue;
      const std::vector<int32_t>& tokens = wave.plan.ranks[w].token_idx;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto begin = slot_rows.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(tokens[i]) * width);
        *std::find(begin, begin + static_cast<std::ptrdiff_t>(width), nullptr) =
            exchange.rows.row_address(static_cast<int64_t>(i));
      }
    }
  }
  ferry::combine(stream_,
                 {.slot_rows = slot_rows, .slot_weights = ones_.data(), .num_slots = static_cast<int64_t>(width), .out = out});
}

}  // namespace ferry
