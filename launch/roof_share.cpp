#include "launch/roof_share.h"

#include <algorithm>

namespace ferry {

Roofs best_of(const Roofs& x, const Roofs& y) {
  return {std::max(x.read_bytes_per_s, y.read_bytes_per_s), std::max(x.flops_per_s, y.flops_per_s),
          std::max(x.code_flops_per_s, y.code_flops_per_s)};
}

RoofShare share_of_roof(const Work& work_of_token, double tokens_per_s, const Roofs& roofs) {
  return {tokens_per_s * work_of_token.bytes / roofs.read_bytes_per_s,
          tokens_per_s * work_of_token.all_flops() / roofs.mixed_flops_per_s(work_of_token)};
}

}  // namespace ferry
