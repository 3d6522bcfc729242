#include "moe/routing/routing_recorder.h"

#include <algorithm>
#include <utility>

namespace ferry {

RoutingRecorder::RoutingRecorder(RoutingShape shape, int64_t max_bytes)
    : max_ids_(static_cast<std::size_t>(max_bytes) / sizeof(uint16_t)), parts_(2) {
  trace_.shape = std::move(shape);
  trace_.ids.reserve(max_ids_);  // the system gives memory for what is written
}

void RoutingRecorder::begin_step(int64_t id) {
  keep();
  id_ = id;
  places_.clear();
  parts_ = {{.id = id, .phase = RoutingPhase::kPrefill}, {.id = id, .phase = RoutingPhase::kDecode}};
  num_layers_seen_ = 0;
  is_laid_out_ = false;
  has_room_ = true;
}

void RoutingRecorder::add_rows(RoutingPhase phase, int64_t count) {
  RoutingStep& part = parts_[static_cast<std::size_t>(phase)];
  for (int64_t i = 0; i < count; ++i) places_.push_back({static_cast<std::size_t>(phase), part.num_rows++});
}

/// Room for all layers of the step.
void RoutingRecorder::lay_out() {
  is_laid_out_ = true;
  const std::size_t first = trace_.ids.size();
  const auto per_row = static_cast<std::size_t>(trace_.shape.num_layers() * trace_.shape.top_k);
  const std::size_t count = per_row * places_.size();
  has_room_ = count <= max_ids_ - first;
  if (!has_room_) return;
  trace_.ids.resize(first + count);
  parts_[0].first = first;
  parts_[1].first = first + per_row * static_cast<std::size_t>(parts_[0].num_rows);
}

bool RoutingRecorder::routed(int64_t layer, int64_t first_row, std::span<int32_t> ids) {
  if (id_ < 0) return false;
  if (!is_laid_out_) lay_out();
  const std::vector<int64_t>& layers = trace_.shape.layers;
  const auto found = std::lower_bound(layers.begin(), layers.end(), layer);
  if (!has_room_ || found == layers.end() || *found != layer) return false;  // an MTP layer is none of the shape's
  const int64_t k = trace_.shape.top_k, count = std::ssize(ids) / k;
  if (first_row + count > num_seen_rows()) return false;
  const int64_t l = found - layers.begin();
  for (int64_t r = 0; r < count; ++r) {
    const Place place = places_[static_cast<std::size_t>(first_row + r)];
    const RoutingStep& part = parts_[place.part];
    const auto from = ids.subspan(static_cast<std::size_t>(r * k), static_cast<std::size_t>(k));
    std::transform(from.begin(), from.end(),
                   trace_.ids.begin() + static_cast<std::ptrdiff_t>(part.first) + (l * part.num_rows + place.row) * k,
                   [](int32_t id) { return static_cast<uint16_t>(id); });
  }
  num_layers_seen_ += count;
  return false;
}

/// Makes the step that was begun one of the trace, if it is whole.
void RoutingRecorder::keep() {
  if (id_ < 0 || !is_laid_out_) return;
  if (!has_room_) {
    ++trace_.num_left_out;
    return;
  }
  const bool is_whole = num_layers_seen_ == trace_.shape.num_layers() * num_seen_rows();
  for (const RoutingStep& part : parts_)
    if (is_whole && part.num_rows > 0) trace_.steps.push_back(part);
  if (!is_whole) trace_.ids.resize(std::min(parts_[0].first, parts_[1].first));
}

RoutingTrace RoutingRecorder::take() {
  keep();
  id_ = -1;
  return std::move(trace_);
}

}  // namespace ferry
