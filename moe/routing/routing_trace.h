#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

// Which experts a router chose, row by row: what a placement, a plan or a bench can be tried on again. As bytes:
//
//   "FERRYRT1"
//   u32        bytes of the header
//   header     JSON: {"model": "demo", "num_experts": 64, "top_k": 8, "layers": [0, 1, ...], "num_steps": 2, "num_left_out": 0}
//   per step   u64 id | u32 phase (0 prefill, 1 decode) | u32 rows | ids [layers, rows, top_k]
//
// Numbers are little-endian; an id is one byte where there are at most 256 experts, two else.

namespace ferry {

enum class RoutingPhase : uint8_t { kPrefill, kDecode };

/// What a trace must have in common with the model it is used for.
struct RoutingShape {
  std::string model;            // name of the checkpoint's folder; for people
  int64_t num_experts = 0;      // 1 to kRoutingExpertsMax
  int64_t top_k = 0;            // 1 to kRoutingTopKMax and num_experts
  std::vector<int64_t> layers;  // of the model that have a router, ascending

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
};

inline constexpr int64_t kRoutingExpertsMax = 8192;
inline constexpr int64_t kRoutingTopKMax = 128;
inline constexpr int64_t kRoutingLayersMax = 1024;
inline constexpr int64_t kRoutingRowsMax = int64_t{1} << 24;        // of a step
inline constexpr int64_t kRoutingBytesMax = int64_t{1} << 30;       // of a file
inline constexpr int64_t kRoutingBytesRecorded = int64_t{1} << 26;  // of memory that a capture takes for it at most

/// Rows of one kind of one step. A step that has both kinds is two of these with the same id.
struct RoutingStep {
  int64_t id = 0;
  RoutingPhase phase = RoutingPhase::kPrefill;
  int64_t num_rows = 0;   // >= 1
  std::size_t first = 0;  // index in RoutingTrace::ids
};

struct RoutingTrace {
  RoutingShape shape;
  std::vector<RoutingStep> steps;
  std::vector<uint16_t> ids;  // of each step [layers, rows, top_k], all < num_experts, those of a row and layer all different
  int64_t num_left_out = 0;   // steps that were not recorded for lack of room

  /// [rows, top_k] of a step; `layer` counts those of the shape.
  std::span<const uint16_t> of(const RoutingStep& step, int64_t layer) const {
    const auto size = static_cast<std::size_t>(step.num_rows * shape.top_k);
    return std::span(ids).subspan(step.first + static_cast<std::size_t>(layer) * size, size);
  }
  /// [top_k] of one row.
  std::span<const uint16_t> of(const RoutingStep& step, int64_t layer, int64_t row) const {
    return of(step, layer).subspan(static_cast<std::size_t>(row * shape.top_k), static_cast<std::size_t>(shape.top_k));
  }
  int64_t num_rows() const;
};

std::vector<std::byte> encode_routing_trace(const RoutingTrace& trace);

/// Checks everything before it is used or room is made for it. Throws Error{kInvalidArgument} that names `source` and what is
/// wrong.
RoutingTrace decode_routing_trace(std::span<const std::byte> bytes, const std::string& source);

/// The file of a trace, or the one in a capture's folder. Throws kNotFound if there is none, and what decode does.
RoutingTrace read_routing_trace(const std::filesystem::path& path);
inline constexpr const char* kRoutingFile = "routing.ferryrt";  // in a capture's folder

/// Throws Error{kInvalidArgument} that names `source` unless the trace is of such layers, experts and top_k.
void require_shape(const RoutingTrace& trace, const RoutingShape& model, const std::string& source);

}  // namespace ferry
