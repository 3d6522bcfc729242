#include "moe/local_token_dispatcher.h"

#include <algorithm>

#include "profiler/span.h"

namespace ferry {
namespace {

std::vector<ExpertOwner> own_all(int64_t num_experts) {
  std::vector<ExpertOwner> owners(static_cast<std::size_t>(num_experts));
  for (int32_t e = 0; e < num_experts; ++e) owners[static_cast<std::size_t>(e)] = {.rank_idx = 0, .local_idx = e};
  return owners;
}

}  // namespace

LocalTokenDispatcher::LocalTokenDispatcher(const ExpertBank& bank, Stream& stream, const Options& options)
    : stream_(stream),
      row_dtype_(bank.row_dtype(options.dtype)),
      placement_(
          ExpertPlacement::contiguous(std::max<int64_t>(bank.num_layers(), 1), bank.num_local_experts(), std::array{Rank{0}})),
      load_(bank.num_layers(), bank.num_local_experts()),
      bank_(bank),
      owners_(own_all(bank.num_local_experts())),
      ffn_(bank.dims(), bank.type(), stream, options.dtype, options.max_tokens * options.top_k) {
  for (InFlight& slot : in_flight_)
    slot.rows = Matrix(stream.memory(), options.dtype, options.max_tokens * options.top_k, bank.dims().hidden_dim);
  slot_rows_.resize(static_cast<std::size_t>(options.max_tokens * options.top_k));
}

DispatchHandle LocalTokenDispatcher::dispatch(const DispatchArgs& args) {
  const int slot_idx = in_flight_[0].open ? 1 : 0;
  InFlight& slot = in_flight_[static_cast<std::size_t>(slot_idx)];
  FERRY_CHECK(!slot.open) << "more than " << kMaxInFlight << " dispatches in flight";
  slot.open = true;
  slot.top_k = args.top_k;
  slot.slot_weights = args.slot_weights;
  FERRY_CHECK_EQ(args.topk_idx.size(), args.topk_weights.size());
  FERRY_CHECK(args.tokens.x.dtype == row_dtype_);
  load_.record(args.layer, args.topk_idx);
  {
    const Span span(Zone::kInitRouting, args.tokens.x.rows);
    const std::array num_local{static_cast<int32_t>(owners_.size())};
    plan_dispatch(args.topk_idx, args.top_k, owners_, num_local, slot.plan);
  }
  const RankRows& rank = slot.plan.ranks[0];
  // A token without experts does not exist (top_k >= 1), so token_idx is 0, 1, 2, … and row_token indexes the batch itself.
  FERRY_CHECK_EQ(static_cast<int64_t>(rank.token_idx.size()), args.tokens.x.rows);
  const auto num_rows = static_cast<int64_t>(rank.row_token.size());
  const Span span(Zone::kExperts, num_rows);
  ffn_.run(bank_.layer(args.layer), {.tokens = args.tokens, .row_token = rank.row_token, .expert_counts = rank.expert_counts},
           slot.rows.top(num_rows));
  return DispatchHandle(slot_idx);
}

void LocalTokenDispatcher::combine(DispatchHandle handle, MatrixView out) {
  InFlight& slot = in_flight_.at(static_cast<std::size_t>(handle.release()));
  FERRY_CHECK(slot.open);
  const MatrixView rows = slot.rows.view();
  for (std::size_t i = 0; i < slot.plan.slots.size(); ++i) slot_rows_[i] = rows.row_address(slot.plan.slots[i].row);
  ferry::combine(stream_, {.slot_rows = std::span(slot_rows_).first(slot.plan.slots.size()),
                           .slot_weights = slot.slot_weights,
                           .num_slots = slot.top_k,
                           .out = out});
  slot.open = false;
}

}  // namespace ferry
