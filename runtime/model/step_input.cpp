#include "runtime/model/step_input.h"

#include <algorithm>
#include <cstdlib>

namespace ferry {
namespace {

/// The row nearest to the middle at which the step may be cut; 0 if there is none.
int64_t find_cut(const StepInput& input) {
  const auto num_tokens = static_cast<int64_t>(input.token_ids.size()), middle = num_tokens / 2;
  int64_t best = 0;
  const auto consider = [&](int64_t row) {
    if (std::abs(row - middle) < std::abs(best - middle)) best = row;
  };
  for (const SequenceSpan& sequence : input.sequences) {
    consider(sequence.first_row);
    if (sequence.form == DeltaForm::kRecurrent) continue;
    for (int64_t row = input.delta_chunk; row < sequence.num_tokens; row += input.delta_chunk)
      consider(sequence.first_row + row);
  }
  return best;
}

void take_rows(const StepInput& input, int64_t begin, int64_t end, MicroBatch& batch) {
  batch.first_row = begin;
  batch.has_addend = false;
  batch.expert_sum.reset();
  batch.num_tokens = end - begin;
  batch.sequences.clear();
  batch.block_tables.clear();
  batch.state_slots.clear();
  batch.saves.clear();
  for (const StateSave& save : input.saves) {
    if (save.end_row <= begin || save.end_row > end) continue;
    batch.saves.push_back({.end_row = save.end_row - begin, .slot = save.slot, .snapshot = save.snapshot});
  }
  for (std::size_t s = 0; s < input.sequences.size(); ++s) {
    const SequenceSpan& whole = input.sequences[s];
    const int64_t first = std::max(begin, whole.first_row), last = std::min(end, whole.first_row + whole.num_tokens);
    if (first >= last) continue;
    SequenceSpan part = whole;  // one that replays or holds rows is never cut
    part.first_row = first - begin;
    part.num_tokens = last - first;
    part.num_past = whole.num_past + first - whole.first_row;
    batch.sequences.push_back(part);
    batch.block_tables.push_back(input.block_tables[s]);
    batch.state_slots.push_back(input.state_slots[s]);
  }
}

}  // namespace

void StepRows::clear() {
  token_ids_.clear();
  for (std::vector<int32_t>& axis : axes_) axis.clear();
  given_.clear();
  saves_.clear();
  sequences_.clear();
  block_tables_.clear();
  state_slots_.clear();
  logit_rows_.clear();
}

void StepRows::add(const SequenceRows& rows) {
  const auto first_row = static_cast<int64_t>(token_ids_.size()), num_tokens = static_cast<int64_t>(rows.tokens.size());
  token_ids_.insert(token_ids_.end(), rows.tokens.begin(), rows.tokens.end());
  add_positions(rows);
  if (rows.media != nullptr) add_given(rows, first_row);
  sequences_.push_back({.first_row = first_row,
                        .num_tokens = num_tokens,
                        .num_past = rows.num_past,
                        .form = rows.form,
                        .num_replayed = rows.num_replayed,
                        .num_held = rows.num_held});
  block_tables_.push_back(rows.block_table);
  state_slots_.push_back(rows.state_slot);
  if (rows.logits == SequenceRows::Logits::kNone) return;
  const int64_t end_row = first_row + num_tokens;
  for (int64_t row = rows.logits == SequenceRows::Logits::kAll ? first_row : end_row - 1; row < end_row; ++row)
    logit_rows_.push_back(static_cast<int32_t>(row));
}

void StepRows::save_state(int64_t num_tokens, Address<std::byte> snapshot) {
  saves_.push_back({.end_row = sequences_.back().first_row + num_tokens, .slot = state_slots_.back(), .snapshot = snapshot});
}

/// Of text a token's number on all axes; a prompt with pictures has its own, and what follows counts on from them.
void StepRows::add_positions(const SequenceRows& rows) {
  static const MropePositions plain;
  const MropePositions& positions = rows.media != nullptr ? rows.media->prompt->positions : plain;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    const std::vector<int32_t>& axis = positions.axes[a];
    for (int64_t token = rows.num_past; token < rows.num_past + std::ssize(rows.tokens); ++token) {
      const bool is_known = token < std::ssize(axis);
      axes_[a].push_back(is_known ? axis[static_cast<std::size_t>(token)] : static_cast<int32_t>(token) + positions.delta);
    }
  }
}

/// The embeddings of the media that these rows read.
void StepRows::add_given(const SequenceRows& rows, int64_t first_row) {
  const int64_t begin = rows.num_past + rows.token_offset, end = begin + std::ssize(rows.tokens);
  for (const MediaSpan& span : rows.media->prompt->spans) {
    const int64_t from = std::max(begin, span.first_token), to = std::min(end, span.first_token + span.num_tokens);
    if (from >= to) continue;
    const ConstMatrixView embeddings = rows.media->embeddings[span.medium]->view();
    given_.push_back({.first_row = first_row + from - begin,
                      .embeddings = embeddings.rows_from(span.first_row + from - span.first_token, to - from)});
  }
}

StepInput StepRows::input(int64_t delta_chunk) {
  positions_.clear();
  for (const std::vector<int32_t>& axis : axes_) positions_.insert(positions_.end(), axis.begin(), axis.end());
  return {.token_ids = token_ids_,
          .positions = positions_,
          .sequences = sequences_,
          .block_tables = block_tables_,
          .state_slots = state_slots_,
          .logit_rows = logit_rows_,
          .given = given_,
          .saves = saves_,
          .delta_chunk = delta_chunk};
}

std::span<MicroBatch> make_micro_batches(const StepInput& input, int64_t min_rows, std::array<MicroBatch, 2>& batches) {
  const auto num_tokens = static_cast<int64_t>(input.token_ids.size());
  const int64_t cut = min_rows > 0 && num_tokens >= 2 * min_rows ? find_cut(input) : 0;
  if (cut < min_rows || num_tokens - cut < min_rows || cut == 0) {
    take_rows(input, 0, num_tokens, batches[0]);
    return std::span(batches).first(1);
  }
  take_rows(input, 0, cut, batches[0]);
  take_rows(input, cut, num_tokens, batches[1]);
  batches[1].number = 1;
  return batches;
}

}  // namespace ferry
