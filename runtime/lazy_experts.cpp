#include "runtime/lazy_experts.h"

#include <utility>

#include "profiler/span.h"
#include "runtime/base/check.h"

namespace ferry {

LazyExperts::LazyExperts(MakeLoader make_loader, Stream& stream, ThreadPool& pool, const Options& options)
    : make_loader_(std::move(make_loader)), stream_(stream), pool_(pool), options_(options) {}

void LazyExperts::begin() {
  if (loader_) return;
  loader_ = make_loader_();
  ffn_.emplace(loader_->dims(), loader_->weight_type(), stream_, options_.dtype, options_.max_tokens * options_.top_k);
}

/// Reads those that are missing, on all threads, and marks all as used.
void LazyExperts::require(int64_t layer, const std::vector<int32_t>& experts) {
  std::vector<int32_t> missing;
  for (const int32_t expert : experts) {
    const auto found = kept_.find({layer, expert});
    if (found == kept_.end()) {
      missing.push_back(expert);
    } else {
      uses_.splice(uses_.begin(), uses_, found->second.use);
    }
  }
  if (missing.empty()) return;
  const Span span(Zone::kReadExperts, std::ssize(missing));
  std::vector<std::shared_ptr<const PackedExpert>> loaded(missing.size());
  parallel_for_throwing(pool_, std::ssize(missing), [&](int64_t i, int) {
    const auto at = static_cast<std::size_t>(i);
    loaded[at] = loader_->load(layer, LogicalExpertId{missing[at]});
  });
  for (std::size_t i = 0; i < missing.size(); ++i) {
    const Key key{layer, missing[i]};
    uses_.push_front(key);
    kept_[key] = {.expert = std::move(loaded[i]), .bytes = loader_->packed_bytes(layer), .use = uses_.begin()};
    kept_bytes_ += loader_->packed_bytes(layer);
  }
}

void LazyExperts::make_room() {
  while (kept_bytes_ > options_.max_bytes && !uses_.empty()) {
    const auto last = kept_.find(uses_.back());
    kept_bytes_ -= last->second.bytes;
    kept_.erase(last);
    uses_.pop_back();
  }
}

void LazyExperts::run(int64_t layer, const ExpertRows& rows, MatrixView out) {
  begin();
  std::vector<int32_t> experts, counts;
  for (std::size_t e = 0; e < rows.expert_counts.size(); ++e) {
    if (rows.expert_counts[e] == 0) continue;
    experts.push_back(static_cast<int32_t>(e));
    counts.push_back(rows.expert_counts[e]);
  }
  require(layer, experts);
  std::vector<const PackedMatrix*> gate_up, down;
  for (const int32_t expert : experts) {
    const PackedExpert& packed = *kept_.at({layer, expert}).expert;
    gate_up.push_back(packed.gate_up.get());
    down.push_back(packed.down.get());
  }
  ffn_->run({.gate_up = gate_up, .down = down}, {.tokens = rows.tokens, .row_token = rows.row_token, .expert_counts = counts},
            out);
  stream_.wait(stream_.submit());  // a device may still read the lists above, and experts that go
  make_room();
}

}  // namespace ferry
