#include "launch/bench_driver.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "profiler/span.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/trace/request_trace.h"

namespace ferry {
namespace {

// Snapshots.
constexpr int64_t kContext = 0;
constexpr int64_t of_sequence(int64_t s) { return 1 + s; }

std::string row_bytes(ConstMatrixView logits, int64_t row) {
  return {reinterpret_cast<const char*>(logits.row_bytes(row)),
          static_cast<std::size_t>(logits.cols * dtype_bytes(logits.dtype))};
}

}  // namespace

BenchDriver::BenchDriver(Engine& engine, const Room& room, RoutingReplay* replay)
    : engine_(engine), replay_(replay), room_(room) {
  const SchedulerOptions& limits = engine.scheduler_options();
  FERRY_CHECK_LE(room.further_tokens, room.first_tokens);
  blocks_.resize(static_cast<std::size_t>(limits.num_blocks));
  std::iota(blocks_.begin(), blocks_.end(), 0);
  requests_.resize(static_cast<std::size_t>(limits.max_running));
}

int64_t BenchDriver::blocks_of(int64_t num_tokens) const {
  const int64_t block_tokens = engine_.scheduler_options().block_tokens;
  return (num_tokens + block_tokens - 1) / block_tokens;
}

int64_t BenchDriver::max_sequences() const {
  const int64_t left = std::ssize(blocks_) - blocks_of(room_.first_tokens);
  if (left < 0) return 0;
  return std::min<int64_t>(engine_.scheduler_options().max_running, 1 + left / blocks_of(room_.further_tokens));
}

int32_t* BenchDriver::block_table(int64_t s) {
  const int64_t first = s == 0 ? 0 : blocks_of(room_.first_tokens) + (s - 1) * blocks_of(room_.further_tokens);
  return blocks_.data() + first;
}

void BenchDriver::set_context(int64_t batch, int64_t num_tokens) {
  end_requests();
  context_ = num_tokens;
  snapshots_.reset();
  snapshots_.emplace(engine_.make_snapshots(batch + 1, "bench: what " + std::to_string(batch) + " sequences go back to"));
  if (num_tokens == 0) return;
  engine_.reset_state(0);
  prefill(0, 0, num_tokens, kContext);
  copy_context(batch);
  check_context(batch);
}

/// To the blocks of the sequences behind the first.
void BenchDriver::copy_context(int64_t batch) {
  const auto num_blocks = static_cast<std::size_t>(blocks_of(context_));
  for (int64_t s = 1; s < batch; ++s) engine_.copy_blocks({block_table(0), num_blocks}, {block_table(s), num_blocks});
}

/// The token behind the context has the same logits right after the context was computed, after going back and in the copy.
void BenchDriver::check_context(int64_t batch) {
  const auto next_token = [&](int64_t s) {
    begin_rows();
    add_rows({.s = s, .text = 0, .past = context_, .count = 1, .form = DeltaForm::kRecurrent});
    return row_bytes(forward(Phase::kDecode).all_values(), 0);
  };
  const std::string expected = next_token(0);
  for (const int64_t s : {int64_t{0}, batch - 1}) {
    begin(s);
    if (next_token(s) == expected) continue;
    throw Error(ErrorCode::kInternal, "bench: the logits behind a context of " + std::to_string(context_) +
                                          " tokens are others once sequence " + std::to_string(s) + " has gone back to it");
  }
}

void BenchDriver::begin(int64_t s) {
  if (context_ == 0) return engine_.reset_state(s);
  snapshots_->restore(kContext, s);
}

/// Tokens [begin, end) of sequence `s`; its state behind them goes to a snapshot.
void BenchDriver::prefill(int64_t s, int64_t begin, int64_t end, std::optional<int64_t> snapshot) {
  const SchedulerOptions& limits = engine_.scheduler_options();
  for (int64_t done = begin; done < end;) {
    const int64_t piece = next_prefill_piece(end - begin, done - begin, limits.prefill_chunk, limits.token_budget);
    begin_rows();
    add_rows({.s = s, .text = s, .past = done, .count = piece});
    done += piece;
    if (snapshot && done == end) rows_.save_state(piece, snapshots_->place(*snapshot));
    forward(Phase::kPrefill);
  }
}

void BenchDriver::prompt(int64_t s, int64_t num_prompt) { run_prompt(s, num_prompt, std::nullopt); }

void BenchDriver::kept_prompt(int64_t s, int64_t num_prompt) {
  begin(s);
  run_prompt(s, num_prompt, of_sequence(s));
}

void BenchDriver::go_back(int64_t batch) {
  for (int64_t s = 0; s < batch; ++s) snapshots_->restore(of_sequence(s), s);
}

void BenchDriver::run_prompt(int64_t s, int64_t num_prompt, std::optional<int64_t> snapshot) {
  TracedRequest& request = requests_[static_cast<std::size_t>(s)];
  end_request(request);
  request = {.number = next_traced_request(), .is_open = true, .first_token = 0, .num_generated = 0};
  const auto prompt_tokens = static_cast<uint32_t>(num_prompt);
  const uint64_t begin = now_ticks();
  record_span(Zone::kRequestTokenize, begin, begin, request.number, prompt_tokens);
  record_span(Zone::kRequestQueue, begin, begin, request.number, prompt_tokens);
  prefill(s, context_, context_ + num_prompt, snapshot);
  request.first_token = now_ticks();
  request.num_generated = 1;
  record_span(Zone::kRequestPrefill, begin, request.first_token, request.number, prompt_tokens);
}

HostLogits& BenchDriver::decode_alone(int64_t s, int64_t past) {
  begin_rows();
  add_rows({.s = s, .text = s, .past = past, .count = 1, .form = DeltaForm::kRecurrent});
  return forward(Phase::kDecode);
}

HostLogits& BenchDriver::decode(int64_t batch, int64_t past) {
  begin_rows();
  for (int64_t s = 0; s < batch; ++s) {
    add_rows({.s = s, .text = s, .past = past, .count = 1, .form = DeltaForm::kRecurrent});
    ++requests_[static_cast<std::size_t>(s)].num_generated;
  }
  return forward(Phase::kDecode);
}

int64_t BenchDriver::count_experts_read(const std::function<void()>& steps) {
  is_counting_ = true;
  num_experts_read_ = 0;
  steps();
  is_counting_ = false;
  return num_experts_read_;
}

/// [layers x experts] rows since start.
std::vector<int64_t> BenchDriver::expert_rows() {
  const ExpertLoad& load = engine_.dispatcher().expert_load();
  std::vector<int64_t> rows;
  for (int64_t l = 0; l < load.num_layers(); ++l) rows.insert(rows.end(), load.layer(l).begin(), load.layer(l).end());
  return rows;
}

void BenchDriver::note_experts(const std::vector<int64_t>& rows_before) {
  const std::vector<int64_t> rows = expert_rows();
  for (std::size_t i = 0; i < rows.size(); ++i) num_experts_read_ += rows[i] > rows_before[i] ? 1 : 0;
}

void BenchDriver::end_requests() {
  for (TracedRequest& request : requests_) end_request(request);
}

void BenchDriver::end_request(TracedRequest& request) {
  constexpr uint32_t kReasonLength = static_cast<uint32_t>(FinishReason::kLength);
  if (!request.is_open) return;
  request.is_open = false;
  const uint64_t now = now_ticks();
  record_span(Zone::kRequestDecode, request.first_token, now, request.number, request.num_generated);
  record_span(Zone::kRequestFinish, now, now, request.number, kReasonLength);
}

void BenchDriver::begin_rows() {
  rows_.clear();
  if (replay_ != nullptr) replay_->begin_step();
}

void BenchDriver::add_rows(const Piece& piece) {
  const int64_t vocab = engine_.config().vocab_size;
  if (replay_ != nullptr) {
    const bool is_decoding = piece.form == DeltaForm::kRecurrent;
    replay_->add_rows(is_decoding ? RoutingPhase::kDecode : RoutingPhase::kPrefill, piece.text, piece.past, piece.count);
  }
  tokens_.clear();
  for (int64_t i = piece.past; i < piece.past + piece.count; ++i)
    tokens_.push_back(static_cast<TokenId>((piece.text * 7919 + i * 104729 + 17) % vocab));
  rows_.add({.tokens = tokens_,
             .num_past = piece.past,
             .block_table = block_table(piece.s),
             .state_slot = static_cast<int32_t>(piece.s),
             .logits = SequenceRows::Logits::kLast,
             .form = piece.form});
}

HostLogits& BenchDriver::forward(Phase phase) {
  const std::vector<int64_t> rows_before = is_counting_ ? expert_rows() : std::vector<int64_t>();
  const uint64_t begin = now_ticks();
  const StepInput input = rows_.input(prefill_quantum(engine_.scheduler_options().prefill_chunk));
  HostLogits& logits = engine_.forward(input);
  logits.all_tokens();
  run_account_.record_own();
  run_account_.record_others();
  const uint64_t end = now_ticks();
  if (is_counting_) note_experts(rows_before);
  for (std::size_t i = 0; i < input.state_slots.size(); ++i) {
    const TracedRequest& request = requests_[static_cast<std::size_t>(input.state_slots[i])];
    record_span(Zone::kRequestStep, begin, end, request.number, static_cast<uint32_t>(input.sequences[i].num_tokens));
  }
  record_span(Zone::kStep, begin, end, static_cast<uint32_t>(input.token_ids.size()),
              pack_plan(phase, static_cast<uint32_t>(input.state_slots.size())));
  engine_.trace().work(true);
  return logits;
}

}  // namespace ferry
