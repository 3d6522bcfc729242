#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernels/weight_format.h"

namespace ferry {

/// Which matrices of a model are held as codes, and how; the others are as the run's dtype. Router, in_proj_a, in_proj_b, the
/// shared expert's gate, norms and convolutions always stay. A part whose type only the checkpoint can hold (is_as_stored())
/// has it where the checkpoint does.
struct Quantization {
  bool is_native = false;             // the parts follow from the codes that the checkpoint holds and are not yet known
  std::optional<WeightType> experts;  // routed, and the slices of a dense model's networks
  std::optional<WeightType> shared;   // the shared experts, and dense networks beside mixtures
  std::optional<WeightType> mixers;   // projections of attention and DeltaNet
  std::optional<WeightType> lm_head;

  bool any() const { return is_native || experts || shared || mixers || lm_head; }
  /// Whether a part is as_stored().
  bool has_stored_codes() const;
  friend bool operator==(const Quantization&, const Quantization&) = default;
};

/// The type with its group size: where none was asked for, the default or the largest smaller one that divides rows of `k`.
std::optional<WeightType> with_group_size(const std::optional<WeightType>& type, int64_t k);

/// Bytes of a packed weight, scales and zero points included; plain ones are of `dtype`.
double bytes_per_weight(const std::optional<WeightType>& type, DType dtype);

/// Of a command line: "none"; "native"; a type for all parts ("w8a8", "w4a8", "w4a8:32"); or types by part
/// ("experts=w4a8,lm_head=w8a8"). Throws Error{kInvalidArgument} that says what is allowed.
Quantization parse_quantization(std::string_view text);
/// quantization_name() backwards, of what is packed: also types that only a checkpoint can hold ("experts=e4m3:128"). Nothing
/// for other text.
std::optional<Quantization> parse_packed_quantization(std::string_view text);

/// The reverse: "none", "native", "w8a8", "experts=w4a8:64,lm_head=w8a8". Group size 0 is the default of the width: "w4a8".
std::string quantization_name(const Quantization& quantization);

}  // namespace ferry
