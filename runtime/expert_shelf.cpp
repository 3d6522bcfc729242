#include "runtime/expert_shelf.h"

#include <utility>

namespace ferry {

ExpertShelf::ExpertShelf(const EngineOptions& options, const RankPlace& place, RequireMemory require_memory)
    : options_(options),
      place_(place),
      config_(load_config(options.model)),
      dtype_(options.dtype.value_or(config_.dtype)),
      compute_(options, place, dtype_),
      checkpoint_(Checkpoint::open(options.model)) {
  choose_speculation(options, checkpoint_, config_);
  LoadOptions load_options = make_load_options(options, dtype_, config_, checkpoint_, compute_);
  if (require_memory) load_options.require_memory = std::move(require_memory);
  load_options.progress = [this](int64_t bytes) {
    if (progress_) progress_->add(bytes);
  };
  quantization_ = load_options.weights.quantization;
  loader_.emplace(checkpoint_, config_, compute_.backend.matmul(), std::move(load_options));
}

Cluster::Terms ExpertShelf::terms() const { return make_terms(options_, config_, quantization_, compute_); }

std::shared_ptr<const ExpertBank> ExpertShelf::get_all(const RankExperts& experts) {
  progress_ = stderr_load_progress();
  progress_->expect(loader_->stored_bytes(experts));
  auto bank = std::make_shared<ExpertBank>(loader_->load_all(experts, compute_.pool));
  progress_->finish();
  progress_.reset();
  const std::scoped_lock lock(mutex_);
  for (std::size_t layer = 0; layer < experts.size(); ++layer) {
    for (std::size_t e = 0; e < experts[layer].size(); ++e) {
      const auto l = static_cast<int64_t>(layer);
      if (auto expert = bank->expert(l, static_cast<int64_t>(e))) experts_[{l, experts[layer][e].value}] = expert;
    }
  }
  return bank;
}

std::shared_ptr<const PackedExpert> ExpertShelf::get(int64_t layer, LogicalExpertId expert) {
  const Key key{layer, expert.value};
  std::unique_lock lock(mutex_);
  was_read_.wait(lock, [&] { return !being_read_.contains(key); });
  if (std::shared_ptr<const PackedExpert> held = experts_[key].lock()) return held;
  being_read_.insert(key);
  lock.unlock();
  std::shared_ptr<const PackedExpert> read;
  const auto end = [&] {
    lock.lock();
    being_read_.erase(key);
    was_read_.notify_all();
  };
  try {
    read = loader_->load(layer, expert);
  } catch (...) {
    end();
    throw;
  }
  end();
  experts_[key] = read;
  return read;
}

bool ExpertShelf::has(int64_t layer, LogicalExpertId expert) const {
  const std::scoped_lock lock(mutex_);
  const auto found = experts_.find({layer, expert.value});
  return found != experts_.end() && !found->second.expired();
}

}  // namespace ferry
