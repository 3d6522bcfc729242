#include "runtime/trace/load_marks.h"

#include <algorithm>

#include "profiler/tick_clock.h"

namespace ferry {
namespace {

constexpr std::size_t kMinMarks = 16, kMaxMarks = 4096;

std::size_t count(const ExpertLoad& load) {
  return static_cast<std::size_t>(load.num_layers()) * (load.num_layers() > 0 ? load.layer(0).size() : 0);
}

}  // namespace

LoadMarks::LoadMarks(const ExpertLoad& load, int64_t max_bytes)
    : num_counts_(count(load)),
      capacity_(std::clamp(static_cast<std::size_t>(max_bytes) / (sizeof(int64_t) * std::max<std::size_t>(num_counts_, 1)),
                           kMinMarks, kMaxMarks)),
      counts_(std::make_unique_for_overwrite<int64_t[]>(capacity_ * num_counts_)) {
  marks_.reserve(capacity_);
  for (std::size_t slot = 0; slot < capacity_; ++slot) free_.push_back(slot);
  set(load);
}

void LoadMarks::note(const ExpertLoad& load, uint64_t held_since) {
  if (++steps_since_ < spacing_) return;
  if (free_.empty()) make_room(held_since);
  set(load);
}

/// Gives up marks that no ring reaches back to. If there are none, every second one: the rings reach further than the marks.
void LoadMarks::make_room(uint64_t held_since) {
  const auto first_held =
      std::find_if(marks_.begin(), marks_.end(), [&](const Place& mark) { return mark.ticks >= held_since; });
  const bool is_sparse = first_held - marks_.begin() > static_cast<std::ptrdiff_t>(capacity_ / 2);
  if (is_sparse && spacing_ > 1) spacing_ /= 2;
  const bool has_stale = first_held != marks_.begin();
  std::size_t number = 0;
  std::erase_if(marks_, [&](const Place& mark) {
    const bool goes = has_stale ? mark.ticks < held_since : number++ % 2 == 0;
    if (goes) free_.push_back(mark.slot);
    return goes;
  });
  if (!has_stale) spacing_ *= 2;
}

void LoadMarks::set(const ExpertLoad& load) {
  const std::size_t slot = free_.back();
  free_.pop_back();
  int64_t* to = counts_.get() + slot * num_counts_;
  for (int64_t l = 0; l < load.num_layers(); ++l) to = std::copy(load.layer(l).begin(), load.layer(l).end(), to);
  marks_.push_back({now_ticks(), slot});
  steps_since_ = 0;
}

LoadMarks::Mark LoadMarks::first_from(uint64_t ticks) const {
  auto mark = std::find_if(marks_.begin(), marks_.end(), [&](const Place& place) { return place.ticks >= ticks; });
  if (mark == marks_.end()) --mark;
  return {mark->ticks, std::span(counts_.get() + mark->slot * num_counts_, num_counts_)};
}

}  // namespace ferry
