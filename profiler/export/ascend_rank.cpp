#include "profiler/export/ascend_rank.h"

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

const std::string& kind_name(const Collective& collective) {
  static const std::string kDispatch = "hcom_alltoallv__dispatch_", kCombine = "hcom_alltoallv__combine_";
  return collective.is_dispatch ? kDispatch : kCombine;
}

/// Names are numbers behind the last underscore and must differ within a step: 1000 + layer is the layer's second micro-batch.
std::string number_of(const Collective& collective) { return std::to_string(collective.layer + 1000 * collective.micro_batch); }

}  // namespace

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
