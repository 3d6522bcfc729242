#pragma once

#include <array>

#include "profiler/report/timeline/timeline.h"
#include "profiler/zones.h"

namespace ferry {

/// Kinds of layers, of their halves and of what stands around them, in the order of a step.
inline constexpr std::array kLayerTypes{"embed", "linear_attention", "full_attention", "short_conv", "dense",  "moe",
                                        "norm",  "lm_head",          "sample",         "draft",      "vision", "other"};

/// The kind of layer that a zone's time belongs to: one of kLayerTypes. Waits for experts are the MoE block's.
const char* layer_type_of(Zone zone);

/// Names the kinds of a lane's slices, asked in their order: what is done to guess drafts is "draft", whatever it does.
class SliceTypes {
 public:
  const char* of(const Slice& slice) {
    if (slice.zone == Zone::kDraft) draft_end_ns_ = slice.end_ns;
    return slice.begin_ns < draft_end_ns_ ? "draft" : layer_type_of(slice.zone);
  }

 private:
  int64_t draft_end_ns_ = 0;
};

}  // namespace ferry
