#include "runtime/expert_holder.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/device_needs.h"

namespace ferry {
namespace {

/// Of any layer.
int64_t most_experts(const RankExperts& experts) {
  std::size_t most = 0;
  for (const auto& layer : experts) most = std::max(most, layer.size());
  return static_cast<int64_t>(most);
}

}  // namespace

ExpertHolder::ExpertHolder(ExpertShelf& shelf) : shelf_(shelf) {
  const RankExperts none(static_cast<std::size_t>(shelf.num_layers()));
  const std::vector<int64_t> no_experts(none.size(), 0);
  const ExpertLoader& loader = shelf.loader();
  held_ = {.experts = none, .bank = std::make_shared<ExpertBank>(no_experts, loader.dims(), loader.weight_type())};
  replies_.emplace(*held_.bank, shelf.compute().stream, reply_options());
  ExpertPreparer::Options preparing{.dtype = shelf.dtype(), .make_backend = {}, .works_now = shelf.place().works_now};
  if (!shelf.compute().device) {
    preparing.make_backend = [&shelf] {
      return select_backend(shelf.options().kernels, shelf.options().matmul, shelf.dtype());
    };
  }
  preparer_.emplace(shelf, std::move(preparing));
}

ExpertHolder::~ExpertHolder() = default;

ReplyWriter::Options ExpertHolder::reply_options() const {
  return {.max_tokens = shelf_.options().token_budget,
          .top_k = shelf_.config().moe.top_k,
          .num_experts = shelf_.config().moe.num_experts,
          .dtype = shelf_.dtype(),
          .combine = shelf_.options().combine};
}

void ExpertHolder::hold(uint32_t epoch, Holding holding) {
  replies_->hold(epoch, *holding.bank);
  held_ = std::move(holding);
}

void ExpertHolder::hold(const Assignment& assignment) {
  const std::optional<ComputeDevice>& device = shelf_.compute().device;
  if (device) {
    require_device_memory(
        *device, worker_needs(shelf_.config(), shelf_.quantization(), most_experts(assignment.experts), reply_options()));
  }
  hold(assignment.epoch, {.experts = assignment.experts, .bank = shelf_.get_all(assignment.experts)});
}

void ExpertHolder::go_over(uint32_t epoch) {
  if (!next_ || !next_->is_told || next_->preparation.epoch != epoch) return;
  hold(epoch, std::move(next_->holding));
  next_.reset();
}

WorkerShape ExpertHolder::largest_shape() const {
  WorkerShape shape = replies_->shape();
  for (int32_t& num_local : shape.num_local_experts) num_local = static_cast<int32_t>(shelf_.config().moe.num_experts);
  return shape;
}

void ExpertHolder::begin_anew() {
  next_.reset();
  preparer_->give_up();
  replies_->hold(0, *held_.bank);
}

void ExpertHolder::prepare(Assignment assignment) {
  next_.reset();
  preparer_->begin(std::move(assignment), held_.bank, held_.experts);
}

/// Of a device, one at a time. False once all are known.
bool ExpertHolder::sing_next(Next& next) {
  while (next.layer < next.canaries.size() && next.at == next.canaries[next.layer].size()) {
    ++next.layer;
    next.at = 0;
  }
  if (next.layer == next.canaries.size()) return false;
  if (!canary_) canary_.emplace(shelf_.loader().dims(), shelf_.loader().weight_type(), shelf_.dtype(), shelf_.compute().stream);
  const LogicalExpertId expert = next.canaries[next.layer][next.at++];
  const auto layer = static_cast<int64_t>(next.layer);
  const HeldExperts then{next.holding.experts, *next.holding.bank}, now{held_.experts, *held_.bank};
  next.preparation.canaries.push_back(shelf_.loader().has_experts(layer) ? canary_->sing(find_expert(then, now, layer, expert))
                                                                         : 0);
  return true;
}

std::optional<Preparation> ExpertHolder::advance() {
  if (std::optional<ExpertPreparer::Prepared> prepared = preparer_->take()) {
    if (prepared->bank == nullptr) return prepared->preparation;
    next_ = Next{};
    next_->preparation = std::move(prepared->preparation);
    if (shelf_.compute().device) next_->canaries = std::move(prepared->assignment.canaries);
    next_->holding = {.experts = std::move(prepared->assignment.experts), .bank = std::move(prepared->bank)};
  }
  if (!next_ || next_->is_told || sing_next(*next_)) return std::nullopt;
  next_->is_told = true;
  next_->preparation.voice = voice_of(shelf_.compute());
  return next_->preparation;
}

}  // namespace ferry
