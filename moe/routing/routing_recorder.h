#pragma once

#include <cstdint>
#include <vector>

#include "moe/routing/routing_hook.h"
#include "moe/routing/routing_trace.h"

namespace ferry {

/// Records what the router chooses, in memory that is bounded and asked for at once: steps that find no room are counted and
/// left out. One thread at a time.
///
///   recorder.begin_step(7);  recorder.add_rows(RoutingPhase::kDecode, 1);  ...   // of each sequence, in the order of the rows
///   recorder.routed(...)                                                          // of each layer
class RoutingRecorder final : public RoutingHook {
 public:
  RoutingRecorder(RoutingShape shape, int64_t max_bytes);

  void begin_step(int64_t id);
  void add_rows(RoutingPhase phase, int64_t count);
  bool routed(int64_t layer, int64_t first_row, std::span<int32_t> ids) override;
  /// What was recorded; steps of which not every layer was seen are not in it. No call may follow.
  RoutingTrace take();

 private:
  struct Place {
    std::size_t part;  // of the step: RoutingPhase
    int64_t row;
  };

  void lay_out();
  void keep();
  int64_t num_seen_rows() const { return static_cast<int64_t>(places_.size()); }

  RoutingTrace trace_;
  std::size_t max_ids_;
  // The step that is being recorded, behind all that is kept.
  int64_t id_ = -1;
  std::vector<Place> places_;       // [rows]
  std::vector<RoutingStep> parts_;  // by phase; without rows where it has none
  int64_t num_layers_seen_ = 0;     // times rows
  bool is_laid_out_ = false, has_room_ = true;
};

}  // namespace ferry
