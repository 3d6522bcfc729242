#include "tests/support/prompt_run.h"

#include <numeric>

namespace ferry::test {
namespace {

std::vector<float> row_values(ConstMatrixView matrix, int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(matrix.cols));
  visit_dtype(matrix.dtype, [&]<class T>() {
    for (std::size_t c = 0; c < values.size(); ++c) values[c] = to_float(matrix.row<T>(row)[c]);
  });
  return values;
}

void append(std::vector<float>& to, const std::vector<float>& from) { to.insert(to.end(), from.begin(), from.end()); }

}  // namespace

EngineDriver::EngineDriver(Engine& engine) : engine_(engine) {
  const SchedulerOptions& limits = engine.scheduler_options();
  const int64_t share = limits.num_blocks / limits.max_running;
  blocks_.resize(static_cast<std::size_t>(limits.max_running), std::vector<int32_t>(static_cast<std::size_t>(share)));
  for (std::size_t s = 0; s < blocks_.size(); ++s)
    std::iota(blocks_[s].begin(), blocks_[s].end(), static_cast<int32_t>(s) * static_cast<int32_t>(share));
  num_past_.resize(blocks_.size());
  for (std::size_t s = 0; s < blocks_.size(); ++s) reset(static_cast<int32_t>(s));
}

void EngineDriver::reset(int32_t sequence) {
  num_past_[static_cast<std::size_t>(sequence)] = 0;
  engine_.reset_state(sequence);
}

std::vector<std::vector<float>> EngineDriver::step(std::span<const Piece> pieces, const Tap* tap) {
  StepRows rows;
  for (const Piece& piece : pieces) {
    const auto sequence = static_cast<std::size_t>(piece.sequence);
    num_past_[sequence] += piece.num_replayed;
    rows.add({.tokens = piece.tokens,
              .num_past = num_past_[sequence],
              .block_table = blocks_[sequence].data(),
              .state_slot = piece.sequence,
              .logits = SequenceRows::Logits::kAll,
              .form = piece.form,
              .num_replayed = piece.num_replayed,
              .num_held = piece.num_held});
    num_past_[sequence] += static_cast<int64_t>(piece.tokens.size()) - piece.num_held;
  }
  const StepInput input = rows.input(prefill_quantum(engine_.scheduler_options().prefill_chunk));
  const ConstMatrixView logits = engine_.forward(input, tap).all_values();
  std::vector<std::vector<float>> result;
  for (int64_t r = 0; r < logits.rows; ++r) result.push_back(row_values(logits, r));
  return result;
}

std::vector<std::vector<float>> EngineDriver::prompt(int32_t sequence, std::span<const TokenId> tokens, const Tap* tap) {
  const SchedulerOptions& limits = engine_.scheduler_options();
  std::vector<std::vector<float>> logits;
  for (std::size_t done = 0; done < tokens.size();) {
    const auto count = static_cast<std::size_t>(next_prefill_piece(
        static_cast<int64_t>(tokens.size()), static_cast<int64_t>(done), limits.prefill_chunk, limits.token_budget));
    const Piece piece{.sequence = sequence, .tokens = tokens.subspan(done, count)};
    for (std::vector<float>& row : step({&piece, 1}, tap)) logits.push_back(std::move(row));
    done += count;
  }
  return logits;
}

PromptTrace trace_prompt(Engine& engine, std::span<const TokenId> tokens) {
  PromptTrace trace;
  const Tap tap{
      .matrix =
          [&](const char* name, int64_t layer, ConstMatrixView matrix) {
            std::vector<float>& to = trace.values[std::string(name) + "." + std::to_string(layer)];
            for (int64_t r = 0; r < matrix.rows; ++r) append(to, row_values(matrix, r));
          },
      .routing =
          [&](int64_t layer, std::span<const int32_t> ids, std::span<const float> weights) {
            std::vector<int32_t>& all_ids = trace.topk_ids[layer];
            all_ids.insert(all_ids.end(), ids.begin(), ids.end());
            append(trace.values["layers." + std::to_string(layer) + ".topk_weights"], {weights.begin(), weights.end()});
          }};
  EngineDriver driver(engine);
  for (const std::vector<float>& row : driver.prompt(0, tokens, &tap)) append(trace.values["logits"], row);
  const ModelConfig& config = engine.config();
  int state_layer = 0;
  for (std::size_t l = 0; l < config.layers.size(); ++l) {
    if (config.layers[l].mixer != Mixer::kGatedDelta) continue;
    const Matrix state = engine.delta_state(state_layer++, 0);
    const float* first = state.view().row<float>(0);
    trace.values["recurrent_state." + std::to_string(l)].assign(first, first + state.rows() * state.cols());
  }
  return trace;
}

}  // namespace ferry::test
