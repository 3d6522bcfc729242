#include "moe/device_token_dispatcher.h"

#include <algorithm>
#include <utility>

#include "kernels/backend.h"
#include "profiler/span.h"

namespace ferry {
DeviceTokenDispatcher::DeviceTokenDispatcher(const ExpertBank& bank, Stream& stream, const Options& options)
    : bank_(bank),
      stream_(stream),
      row_dtype_(bank.row_dtype(options.dtype)),
      placement_(
          ExpertPlacement::contiguous(std::max<int64_t>(bank.num_layers(), 1), bank.num_local_experts(), std::array{Rank{0}})),
      row_totals_(stream, bank.num_layers() * bank.num_local_experts()),
      seen_(static_cast<std::size_t>(row_totals_.size()), 0),
      load_(bank.num_layers(), bank.num_local_experts()) {
  Memory& memory = stream.memory();
  const int64_t max_rows = options.max_tokens * options.top_k, width = bank.dims().intermediate_dim;
  for (InFlight& slot : in_flight_) {
    slot.row_token = Array<int32_t>(memory, max_rows);
    slot.slot_row = Array<int32_t>(memory, max_rows);
    slot.row_runs = Array<RowRun>(memory, max_rows);
    slot.counts = Array<int32_t>(memory, bank.num_local_experts());
    slot.activated = Matrix(memory, options.dtype, max_rows, width);
    slot.rows = Matrix(memory, options.dtype, max_rows, bank.dims().hidden_dim);
    if (!bank.is_quantized()) continue;
    slot.codes = Matrix(memory, DType::kI8, max_rows, quantized_cols(width));
    slot.scales = Array<float>(memory, max_rows);
  }
}

DispatchHandle DeviceTokenDispatcher::dispatch(const DispatchArgs& args) {
  const int slot_idx = in_flight_[0].open ? 1 : 0;
  InFlight& slot = in_flight_[static_cast<std::size_t>(slot_idx)];
  FERRY_CHECK(!slot.open) << "more than " << kMaxInFlight << " dispatches in flight";
  FERRY_CHECK(args.tokens.x.dtype == row_dtype_);
  slot.open = true;
  slot.num_tokens = args.tokens.x.rows;
  slot.top_k = args.top_k;
  slot.slot_weights = args.slot_weights;
  const int64_t num_experts = bank_.num_local_experts();
  const ExpertRowsArgs rows{.topk_idx = args.slot_experts,
                            .num_tokens = slot.num_tokens,
                            .top_k = slot.top_k,
                            .num_experts = num_experts,
                            .row_token = slot.row_token.data(),
                            .slot_row = slot.slot_row.data(),
                            .counts = slot.counts.data(),
                            .row_runs = slot.row_runs.data(),
                            .row_totals = row_totals_.device() + args.layer * num_experts};
  if (args.choice != nullptr) {
    choose_experts(stream_, {.router = *args.choice, .rows = rows});
  } else {
    expert_rows(stream_, rows);
  }
  run_experts(args.layer, args.tokens, slot);
  return DispatchHandle(slot_idx);
}

void DeviceTokenDispatcher::run_experts(int64_t layer, const MatmulRows& tokens, InFlight& slot) {
  const int64_t num_rows = slot.num_tokens * slot.top_k;
  const Span span(Zone::kExperts, num_rows);
  // How many experts have rows is the device's to know; so many have at most.
  const int64_t num_experts = std::min(num_rows, bank_.num_local_experts());
  const MatrixView activated = slot.activated.top(num_rows);
  const Address<const int32_t> counts = slot.counts.data();
  {
    const Span product(Zone::kGroupedGateUp, num_rows, num_experts);
    grouped_matmul(stream_, {.rows = tokens,
                             .weights = bank_.gate_up(layer),
                             .out = activated,
                             .device_counts = counts,
                             .row_runs = slot.row_runs.data(),
                             .row_idx = slot.row_token.data()});
  }
  MatmulRows down{activated};
  if (bank_.is_quantized()) {
    down = {slot.codes.top(num_rows), slot.scales.data()};
    quantize_rows(
        stream_,
        {.zone = Zone::kExpertQuantize, .x = activated, .codes = slot.codes.top(num_rows), .scales = slot.scales.data()});
  }
  const Span product(Zone::kGroupedDown, num_rows, num_experts);
  grouped_matmul(stream_, {.rows = down,
                           .weights = bank_.down(layer),
                           .out = slot.rows.top(num_rows),
                           .device_counts = counts,
                           .row_runs = slot.row_runs.data(),
                           .are_counts_as_before = true});
}

std::optional<CombineArgs> DeviceTokenDispatcher::take_combine(DispatchHandle& handle, MatrixView out) {
  InFlight& slot = in_flight_.at(static_cast<std::size_t>(handle.release()));
  FERRY_CHECK(slot.open);
  slot.open = false;
  return CombineArgs{.slot_rows = {},
                     .rows = slot.rows.top(slot.num_tokens * slot.top_k),
                     .slot_row = slot.slot_row.data(),
                     .slot_weights = slot.slot_weights,
                     .num_slots = slot.top_k,
                     .out = out};
}

void DeviceTokenDispatcher::combine(DispatchHandle handle, MatrixView out) {
  ferry::combine(stream_, *take_combine(handle, out));
}

void DeviceTokenDispatcher::end_step() { row_totals_.ask(0, row_totals_.size()); }

const ExpertLoad& DeviceTokenDispatcher::expert_load() const {
  const int64_t num_experts = bank_.num_local_experts();
  for (int64_t i = 0; i < row_totals_.size(); ++i) {
    const uint32_t total = row_totals_.host()[i];
    const uint32_t rows = total - std::exchange(seen_[static_cast<std::size_t>(i)], total);
    if (rows > 0) load_.add(i / num_experts, i % num_experts, rows);
  }
  return load_;
}

std::unique_ptr<TokenDispatcher> make_in_process_dispatcher(const ExpertBank& bank, Stream& stream,
                                                            const LocalTokenDispatcher::Options& options) {
  if (!stream.is_on_host() && stream.backend().matmul().has_device_counts())
    return std::make_unique<DeviceTokenDispatcher>(bank, stream, options);
  return std::make_unique<LocalTokenDispatcher>(bank, stream, options);
}

}  // namespace ferry
