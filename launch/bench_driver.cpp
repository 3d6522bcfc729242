#include "launch/bench_driver.h"

#include <algorithm>
#include <numeric>

#include "profiler/span.h"
#include "runtime/trace/request_trace.h"

namespace ferry {
BenchDriver::BenchDriver(Engine& engine, int64_t tokens_per_sequence, RoutingReplay* replay)
    : engine_(engine), replay_(replay) {
  const SchedulerOptions& limits = engine.scheduler_options();
  blocks_per_sequence_ = (tokens_per_sequence + limits.block_tokens - 1) / limits.block_tokens;
  blocks_.resize(static_cast<std::size_t>(limits.num_blocks));
  std::iota(blocks_.begin(), blocks_.end(), 0);
  requests_.resize(static_cast<std::size_t>(limits.max_running));
}

int64_t BenchDriver::max_sequences() const {
  return std::min<int64_t>(engine_.scheduler_options().max_running,
                           static_cast<int64_t>(blocks_.size()) / blocks_per_sequence_);
}

void BenchDriver::prefill(int64_t s, int64_t past, int64_t count) {
  begin_rows();
  add_rows(s, past, count, DeltaForm::kChunk);
  forward(Phase::kPrefill);
}

void BenchDriver::prompt(int64_t s, int64_t num_prompt) {
  engine_.reset_state(s);
  TracedRequest& request = requests_[static_cast<std::size_t>(s)];
  end_request(request);
  request = {.number = next_traced_request(), .is_open = true, .first_token = 0, .num_generated = 0};
  const auto prompt_tokens = static_cast<uint32_t>(num_prompt);
  const uint64_t begin = now_ticks();
  record_span(Zone::kRequestTokenize, begin, begin, request.number, prompt_tokens);
  record_span(Zone::kRequestQueue, begin, begin, request.number, prompt_tokens);
  const SchedulerOptions& limits = engine_.scheduler_options();
  for (int64_t done = 0; done < num_prompt;) {
    const int64_t piece = next_prefill_piece(num_prompt, done, limits.prefill_chunk, limits.token_budget);
    prefill(s, done, piece);
    done += piece;
  }
  request.first_token = now_ticks();
  request.num_generated = 1;
  record_span(Zone::kRequestPrefill, begin, request.first_token, request.number, prompt_tokens);
}

HostLogits& BenchDriver::decode_alone(int64_t s, int64_t past) {
  begin_rows();
  add_rows(s, past, 1, DeltaForm::kRecurrent);
  return forward(Phase::kDecode);
}

HostLogits& BenchDriver::decode(int64_t batch, int64_t past) {
  begin_rows();
  for (int64_t s = 0; s < batch; ++s) {
    add_rows(s, past, 1, DeltaForm::kRecurrent);
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

void BenchDriver::add_rows(int64_t s, int64_t past, int64_t count, DeltaForm form) {
  const int64_t vocab = engine_.config().vocab_size;
  if (replay_ != nullptr)
    replay_->add_rows(form == DeltaForm::kRecurrent ? RoutingPhase::kDecode : RoutingPhase::kPrefill, s, past, count);
  tokens_.clear();
  for (int64_t i = past; i < past + count; ++i) tokens_.push_back(static_cast<TokenId>((s * 7919 + i * 104729 + 17) % vocab));
  rows_.add({.tokens = tokens_,
             .num_past = past,
             .block_table = blocks_.data() + s * blocks_per_sequence_,
             .state_slot = static_cast<int32_t>(s),
             .logits = SequenceRows::Logits::kLast,
             .form = form});
}

HostLogits& BenchDriver::forward(Phase phase) {
  const std::vector<int64_t> rows_before = is_counting_ ? expert_rows() : std::vector<int64_t>();
  const uint64_t begin = now_ticks();
  const StepInput input = rows_.input(prefill_quantum(engine_.scheduler_options().prefill_chunk));
  HostLogits& logits = engine_.forward(input);
  logits.all_tokens();
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
