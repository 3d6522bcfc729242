#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "runtime/cluster/rank_place.h"
#include "runtime/load_progress.h"
#include "runtime/model/expert_loader.h"
#include "runtime/options/engine_options.h"
#include "runtime/rank_setup.h"

namespace ferry {

/// What a worker computes with, and where it gets experts from: those that somebody on this rank holds already are shared,
/// others are read from the checkpoint.
class ExpertShelf {
 public:
  /// Throws Error{kResourceExhausted} with `what` if `bytes` are not there.
  using RequireMemory = std::function<void(int64_t bytes, const std::string& what)>;

  /// Opens checkpoint and device; reads no expert. Throws Error for a bad checkpoint. `require_memory`: asked before experts
  /// are read; empty: whether this machine, or its device, has as much.
  ExpertShelf(const EngineOptions& options, const RankPlace& place, RequireMemory require_memory = {});

  const EngineOptions& options() const { return options_; }
  const RankPlace& place() const { return place_; }
  const ModelConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  int64_t num_layers() const { return std::max<int64_t>(config_.num_expert_layers(), 1); }
  ComputeResources& compute() { return compute_; }
  const ExpertLoader& loader() const { return *loader_; }
  const Quantization& quantization() const { return quantization_; }
  /// What a coordinator must have in common with this rank.
  Cluster::Terms terms() const;

  /// All of `experts`, on all threads. Prints on stderr how it goes (LoadProgress). Throws as ExpertLoader::load_all does.
  std::shared_ptr<const ExpertBank> get_all(const RankExperts& experts);
  /// One, which another thread may be reading now. Any thread. Throws as ExpertLoader::load does.
  std::shared_ptr<const PackedExpert> get(int64_t layer, LogicalExpertId expert);
  /// Whether somebody holds it. Any thread.
  bool has(int64_t layer, LogicalExpertId expert) const;

 private:
  using Key = std::pair<int64_t, int32_t>;  // layer and expert

  const EngineOptions options_;
  const RankPlace place_;
  ModelConfig config_;
  DType dtype_;
  ComputeResources compute_;
  Checkpoint checkpoint_;  // its files hold experts if they are packed
  Quantization quantization_;
  std::unique_ptr<LoadProgress> progress_;  // while get_all() reads
  std::optional<ExpertLoader> loader_;
  mutable std::mutex mutex_;
  std::condition_variable was_read_;
  std::map<Key, std::weak_ptr<const PackedExpert>> experts_;
  std::set<Key> being_read_;
};

}  // namespace ferry
