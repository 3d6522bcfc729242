#include "runtime/model/layer_plan.h"

namespace ferry {

const char* mixer_name(Mixer mixer) {
  switch (mixer) {
    case Mixer::kGatedDelta: return "linear_attention";
    case Mixer::kAttention: return "full_attention";
    case Mixer::kShortConv: return "short_conv";
  }
  return "";
}

}  // namespace ferry
