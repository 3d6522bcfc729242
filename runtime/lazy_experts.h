#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "moe/remote/orphan_experts.h"
#include "runtime/base/thread_pool.h"
#include "runtime/model/expert_loader.h"

namespace ferry {

/// Experts that are read from the checkpoint when they are first needed, and kept as long as there is room, the least recently
/// used going first. Nothing is read or allocated before the first call.
class LazyExperts final : public OrphanExperts {
 public:
  struct Options {
    int64_t max_tokens = 0;  // rows of the largest step
    int64_t top_k = 0;
    DType dtype = DType::kF32;
    int64_t max_bytes = 0;  // of kept experts; those of one call are kept until it is over, whatever they need
  };
  /// How a loader is made, at the first call.
  using MakeLoader = std::function<std::unique_ptr<ExpertLoader>()>;

  LazyExperts(MakeLoader make_loader, Stream& stream, ThreadPool& pool, const Options& options);

  void run(int64_t layer, const ExpertRows& rows, MatrixView out) override;

  /// Experts that are kept now, and their bytes.
  int64_t num_kept() const { return std::ssize(kept_); }
  int64_t kept_bytes() const { return kept_bytes_; }

 private:
  using Key = std::pair<int64_t, int32_t>;  // layer and expert
  struct Kept {
    std::shared_ptr<const PackedExpert> expert;
    int64_t bytes = 0;
    std::list<Key>::iterator use;  // in uses_
  };

  void begin();
  void require(int64_t layer, const std::vector<int32_t>& experts);
  void make_room();

  const MakeLoader make_loader_;
  Stream& stream_;
  ThreadPool& pool_;
  const Options options_;
  std::unique_ptr<ExpertLoader> loader_;
  std::optional<GroupedFfn> ffn_;
  std::map<Key, Kept> kept_;
  std::list<Key> uses_;  // the most recent first
  int64_t kept_bytes_ = 0;
};

}  // namespace ferry
