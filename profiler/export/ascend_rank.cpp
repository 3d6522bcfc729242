#include "profiler/export/ascend_rank.h"

#include <algorithm>
#include <string_view>

namespace ferry {
namespace {

/// As HCCL's files abbreviate the name of a group: two polynomial hashes modulo 2^32 side by side.
uint64_t hash_group(std::string_view name) {
  uint32_t high = 0, low = 0;
  for (const char c : name) {
    high = high * 29 + static_cast<unsigned char>(c);
    low = low * 131 + static_cast<unsigned char>(c);
  }
  return uint64_t{high} << 32 | low;
}

/// Appends a lane's kernels. A slice around the next one loses that one's time if it is an operator, and waits are nobody's.
void append_kernels(const Timeline& timeline, int32_t lane, int64_t stream, std::vector<AscendKernel>& kernels) {
  struct Open {
    int64_t end_ns;
    int64_t kernel;  // index into `kernels`, -1 for what is no operator
    bool is_wait;
  };
  std::vector<Open> open;
  const auto [first, last] = timeline.lane_range(lane);
  int64_t busy_until_ns = -1;
  for (int32_t i = first; i < last; ++i) {
    const Slice& slice = timeline.slices[static_cast<std::size_t>(i)];
    const ZoneKind kind = kind_of(slice);
    while (!open.empty() && open.back().end_ns <= slice.begin_ns) open.pop_back();
    const bool is_in_wait = !open.empty() && open.back().is_wait;
    if ((kind == ZoneKind::kWait || kind == ZoneKind::kCompute) && !is_in_wait) {
      const auto around = std::find_if(open.rbegin(), open.rend(), [](const Open& o) { return o.kernel >= 0; });
      if (around != open.rend()) kernels[static_cast<std::size_t>(around->kernel)].work_ns -= slice.duration_ns();
    }
    int64_t kernel = -1;
    if (kind == ZoneKind::kCompute && !is_in_wait) {
      kernel = static_cast<int64_t>(kernels.size());
      const int64_t gap_ns = busy_until_ns < 0 ? 0 : std::max<int64_t>(slice.begin_ns - busy_until_ns, 0);
      kernels.push_back({i, stream, slice.duration_ns(), gap_ns});
      busy_until_ns = std::max(busy_until_ns, slice.end_ns);
    }
    open.push_back({slice.end_ns, kernel, is_in_wait || kind == ZoneKind::kWait});
  }
}

const std::string& kind_name(const Collective& collective) {
  static const std::string kDispatch = "hcom_alltoallv__dispatch_", kCombine = "hcom_alltoallv__combine_";
  return collective.is_dispatch ? kDispatch : kCombine;
}

/// Names are numbers behind the last underscore and must differ within a step: 1000 + layer is the layer's second micro-batch.
std::string number_of(const Collective& collective) { return std::to_string(collective.layer + 1000 * collective.micro_batch); }

}  // namespace

std::vector<AscendKernel> find_kernels(const AscendRank& rank) {
  const Timeline& timeline = rank.input.timeline;
  std::vector<AscendKernel> kernels;
  int64_t stream = 0;
  for (const int32_t lane : rank.lanes) {
    if (!is_stream(timeline.lanes[static_cast<std::size_t>(lane)])) continue;
    append_kernels(timeline, lane, stream, kernels);
    ++stream;
  }
  const auto begin_of = [&](const AscendKernel& k) { return timeline.slices[static_cast<std::size_t>(k.slice)].begin_ns; };
  std::stable_sort(kernels.begin(), kernels.end(),
                   [&](const AscendKernel& x, const AscendKernel& y) { return begin_of(x) < begin_of(y); });
  return kernels;
}

std::string operator_type(Zone zone) {
  const std::string_view name = zone_info(zone).name;
  return std::string(name.substr(0, name.find('.')));
}

const char* accelerator_core(Zone zone) {
  const std::string type = operator_type(zone);
  if (type == "MatMul" || type == "GroupedMatmul") return "AI_CORE";
  if (type == "MatMulSwiglu" || type == "GroupedMatmulSwiglu") return "MIX_AIC";
  if (zone == Zone::kAttention || zone == Zone::kRecurrentDeltaRule || zone == Zone::kChunkDeltaRule) return "MIX_AIC";
  return "AI_VECTOR_CORE";
}

std::string collective_name(const Collective& collective) { return kind_name(collective) + number_of(collective); }

std::string unique_collective_name(const Collective& collective) {
  return kind_name(collective) + std::to_string(collective.step) + "_" + number_of(collective);
}

const char* collective_group(bool is_dispatch) { return is_dispatch ? "ep_dispatch" : "ep_combine"; }

std::string collective_group_hash(bool is_dispatch) { return std::to_string(hash_group(collective_group(is_dispatch))); }

const char* transport_type(const AscendRank& rank, int32_t peer) {
  const RankCapture& other = rank.input.capture.ranks.at(static_cast<std::size_t>(peer));
  return other.host == rank.capture.host ? "HCCS" : "RDMA";
}

const char* host_level(ZoneKind kind) {
  if (kind == ZoneKind::kStep) return "Model";
  return kind == ZoneKind::kHost ? "Node" : "Runtime";
}

}  // namespace ferry
