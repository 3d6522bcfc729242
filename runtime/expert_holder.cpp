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

ExpertHolder::ExpertHolder(const EngineOptions& options, const RankPlace& place)
    : options_(options),
      config_(load_config(options.model)),
      dtype_(options.dtype.value_or(config_.dtype)),
      compute_(options, place, dtype_),
      checkpoint_(Checkpoint::open(options.model)) {
  choose_speculation(options, checkpoint_, config_);
  LoadOptions load_options = make_load_options(options, dtype_, config_, checkpoint_, compute_);
  load_options.progress = {};  // the coordinator's line is enough
  quantization_ = load_options.weights.quantization;
  loader_.emplace(checkpoint_, config_, compute_.backend.matmul(), std::move(load_options));
  const RankExperts none(static_cast<std::size_t>(num_layers()));
  const std::vector<int64_t> no_experts(none.size(), 0);
  held_ = {.experts = none, .bank = std::make_shared<ExpertBank>(no_experts, loader_->dims(), loader_->weight_type())};
  replies_.emplace(*held_.bank, compute_.stream, reply_options());
  ExpertPreparer::Options preparing{.dtype = dtype_, .make_backend = {}};
  if (!compute_.device)
    preparing.make_backend = [this] { return select_backend(options_.kernels, options_.matmul, dtype_); };
  preparer_.emplace(*loader_, std::move(preparing));
}

ExpertHolder::~ExpertHolder() = default;

Cluster::Terms ExpertHolder::terms() const { return make_terms(options_, config_, quantization_, compute_); }

ReplyWriter::Options ExpertHolder::reply_options() const {
  return {.max_tokens = options_.token_budget,
          .top_k = config_.moe.top_k,
          .num_experts = config_.moe.num_experts,
          .dtype = dtype_,
          .combine = options_.combine};
}

void ExpertHolder::hold(uint32_t epoch, Holding holding) {
  replies_->hold(epoch, *holding.bank);
  held_ = std::move(holding);
}

void ExpertHolder::hold(const Assignment& assignment) {
  if (compute_.device) {
    require_device_memory(*compute_.device, worker_needs(config_, quantization_, most_experts(assignment.experts), reply_options()));
  }
  hold(assignment.epoch,
       {.experts = assignment.experts,
        .bank = std::make_shared<ExpertBank>(loader_->load_all(assignment.experts, compute_.pool))});
}

void ExpertHolder::go_over(uint32_t epoch) {
  if (!next_ || !next_->is_told || next_->preparation.epoch != epoch) return;
  hold(epoch, std::move(next_->holding));
  next_.reset();
}

WorkerShape ExpertHolder::largest_shape() const {
  WorkerShape shape = replies_->shape();
  for (int32_t& num_local : shape.num_local_experts) num_local = static_cast<int32_t>(config_.moe.num_experts);
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
  if (!canary_) canary_.emplace(loader_->dims(), loader_->weight_type(), dtype_, compute_.stream);
  const LogicalExpertId expert = next.canaries[next.layer][next.at++];
  const auto layer = static_cast<int64_t>(next.layer);
  const HeldExperts then{next.holding.experts, *next.holding.bank}, now{held_.experts, *held_.bank};
  next.preparation.canaries.push_back(loader_->has_experts(layer) ? canary_->sing(find_expert(then, now, layer, expert)) : 0);
  return true;
}

std::optional<Preparation> ExpertHolder::advance() {
  if (std::optional<ExpertPreparer::Prepared> prepared = preparer_->take()) {
    if (prepared->bank == nullptr) return prepared->preparation;
    next_.emplace();
    next_->preparation = std::move(prepared->preparation);
    if (compute_.device) next_->canaries = std::move(prepared->assignment.canaries);
    next_->holding = {.experts = std::move(prepared->assignment.experts), .bank = std::move(prepared->bank)};
  }
  if (!next_ || next_->is_told || sing_next(*next_)) return std::nullopt;
  next_->is_told = true;
  return next_->preparation;
}

}  // namespace ferry
