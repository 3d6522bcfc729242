#include "runtime/media_encoder.h"

#include <algorithm>
#include <utility>

#include "profiler/span.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

int64_t bytes_of(const Matrix& matrix) { return matrix.rows() * matrix.cols() * dtype_bytes(matrix.dtype()); }

}  // namespace

std::shared_ptr<const Matrix> MediaCache::find(const MediumDigest& digest) {
  const auto place = places_.find(digest);
  if (place == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, place->second);
  return entries_.front().embeddings;
}

void MediaCache::add(const MediumDigest& digest, std::shared_ptr<const Matrix> embeddings) {
  const int64_t num_bytes = bytes_of(*embeddings);
  if (num_bytes > max_bytes_ || places_.contains(digest)) return;
  while (num_bytes_ + num_bytes > max_bytes_) {
    num_bytes_ -= bytes_of(*entries_.back().embeddings);
    places_.erase(entries_.back().digest);
    entries_.pop_back();
  }
  entries_.push_front({.digest = digest, .embeddings = std::move(embeddings)});
  places_[digest] = entries_.begin();
  num_bytes_ += num_bytes;
}

MediaEncoder::MediaEncoder(const MediumReader& reader, const VisionPlan& plan, const VisionWeights& weights, Stream& stream,
                           DType dtype, Options options)
    : reader_(reader),
      plan_(plan),
      stream_(stream),
      dtype_(dtype),
      options_(options),
      tower_(plan, weights, stream, dtype, {.max_patches = options.max_patches}),
      cache_(options.cache_bytes) {}

int64_t MediaEncoder::max_bytes(const VisionPlan& plan, DType dtype, Options options) {
  const int64_t patches = options.max_patches * plan.patch_cols() * static_cast<int64_t>(sizeof(float));
  return VisionTower::buffer_bytes(plan, dtype, {.max_patches = options.max_patches}) + patches + options.cache_bytes;
}

void MediaEncoder::advance(Scheduler& scheduler, const std::function<bool()>& is_over) {
  let_go(scheduler);
  Sequence* sequence = scheduler.next_for_media();
  if (sequence == nullptr) return;
  prompt_ = sequence->request.media;
  while (embeddings_.size() < prompt_->media.size()) {
    const std::shared_ptr<const Medium>& medium = prompt_->media[embeddings_.size()];
    if (std::shared_ptr<const Matrix> known = cache_.find(medium->digest)) {
      embeddings_.push_back(std::move(known));
      continue;
    }
    if (job_.medium == nullptr || job_.medium->digest != medium->digest) begin(medium);
    if (!run(is_over)) return;
    cache_.add(medium->digest, job_.embeddings);
    embeddings_.push_back(std::exchange(job_, {}).embeddings);
  }
  scheduler.give_media(*sequence, std::make_shared<const EmbeddedMedia>(
                                      EmbeddedMedia{.prompt = std::move(prompt_), .embeddings = std::move(embeddings_)}));
  forget();
}

void MediaEncoder::let_go(const Scheduler& scheduler) {
  const Sequence* next = scheduler.next_for_media();
  if (next == nullptr || next->request.media != prompt_) forget();
}

void MediaEncoder::forget() {
  job_ = {};
  prompt_.reset();
  embeddings_.clear();
}

void MediaEncoder::begin(std::shared_ptr<const Medium> medium) {
  const int64_t num_tokens = medium->grid.num_patches() / plan_.merged_patches();
  job_ = {.medium = std::move(medium),
          .embeddings = std::make_shared<Matrix>(stream_.memory(), dtype_, num_tokens, plan_.out_hidden_dim)};
  begin_steps();
}

/// Cuts the patches of the next steps of time, and begins with them.
void MediaEncoder::begin_steps() {
  const Medium& medium = *job_.medium;
  const int64_t first = job_.num_begun, step_patches = medium.grid.step_patches();
  const int64_t max_rows = std::min(options_.max_patches, kVideoRows);
  const int64_t num_steps = std::min(std::max<int64_t>(max_rows / step_patches, 1), medium.grid.t - first);
  job_.patches = reader_.patches_of(medium, first, num_steps);
  job_.num_begun += num_steps;
  const int64_t num_patches = job_.patches.grid.num_patches(), merged = plan_.merged_patches();
  const ConstMatrixView patches{.data = reinterpret_cast<const std::byte*>(job_.patches.values.data()),
                                .dtype = DType::kF32,
                                .rows = num_patches,
                                .cols = plan_.patch_cols(),
                                .row_stride = plan_.patch_cols()};
  tower_.begin(patches, {&job_.patches.grid, 1},
               job_.embeddings->view().rows_from(first * step_patches / merged, num_patches / merged));
}

/// Goes on until the slice is over; true if the medium is complete by then.
bool MediaEncoder::run(const std::function<bool()>& is_over) {
  const Span span(Zone::kEncodeMedia, job_.patches.grid.num_patches());
  do {
    if (!tower_.advance()) continue;
    if (job_.num_begun == job_.medium->grid.t) return true;
    begin_steps();
  } while (!is_over());
  return false;
}

}  // namespace ferry
