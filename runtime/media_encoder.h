#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "runtime/model/step_input.h"
#include "runtime/model/vision/vision_tower.h"
#include "runtime/schedule/scheduler.h"
#include "runtime/vision/medium.h"

namespace ferry {

/// Embeddings of media by their content, the least recently used ones dropped first. Not thread-safe.
class MediaCache {
 public:
  explicit MediaCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  /// Null if it is not here.
  std::shared_ptr<const Matrix> find(const MediumDigest& digest);
  /// What is larger than the whole cache is not kept.
  void add(const MediumDigest& digest, std::shared_ptr<const Matrix> embeddings);
  int64_t num_bytes() const { return num_bytes_; }

 private:
  struct Entry {
    MediumDigest digest;
    std::shared_ptr<const Matrix> embeddings;
  };

  const int64_t max_bytes_;
  int64_t num_bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::map<MediumDigest, std::list<Entry>::iterator> places_;
};

/// Makes embeddings of the pictures and videos of running sequences, a slice of the tower's work at a time, so that the steps
/// of the decoder go on in between. Which slices a medium is cut into does not change a bit of what becomes of it.
///
/// For the engine's thread.
class MediaEncoder {
 public:
  struct Options {
    int64_t max_patches = 0;  // of one step of time
    int64_t cache_bytes = 0;
  };
  /// Rows of a video that pass the tower together, at least a step of time: more are not faster, and their parts would take
  /// longer.
  static constexpr int64_t kVideoRows = 2048;

  /// `reader`, `plan`, `weights`, `matmul` and what `context` points to outlive it.
  MediaEncoder(const MediumReader& reader, const VisionPlan& plan, const VisionWeights& weights, Stream& stream, DType dtype,
               Options options);

  /// Works a slice for the oldest sequence that waits, and gives it its media when they are complete. Nothing if none does.
  /// The slice ends with a part of a block behind which `is_over` says so: it is asked after each.
  void advance(Scheduler& scheduler, const std::function<bool()>& is_over);
  /// Lets go of the media that are worked at unless the oldest sequence that waits is theirs.
  void let_go(const Scheduler& scheduler);

  const Options& options() const { return options_; }
  /// What the tower, its input and the cache may take beside weights, in bytes.
  static int64_t max_bytes(const VisionPlan& plan, DType dtype, Options options);

 private:
  /// The medium in the tower.
  struct Job {
    std::shared_ptr<const Medium> medium;  // null: none
    std::shared_ptr<Matrix> embeddings;    // [tokens, out_hidden]
    Patches patches;                       // of the steps of time that are under way
    int64_t num_begun = 0;                 // steps of time, these included
  };

  void begin(std::shared_ptr<const Medium> medium);
  void begin_steps();
  bool run(const std::function<bool()>& is_over);
  void forget();

  const MediumReader& reader_;
  const VisionPlan& plan_;
  Stream& stream_;
  const DType dtype_;
  const Options options_;
  VisionTower tower_;
  MediaCache cache_;
  Job job_;
  std::shared_ptr<const PromptMedia> prompt_;              // of the sequence that is served
  std::vector<std::shared_ptr<const Matrix>> embeddings_;  // of its first media
};

}  // namespace ferry
