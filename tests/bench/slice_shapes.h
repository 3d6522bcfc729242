#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ferry {

/// A tensor to draw: nearly normal numbers.
struct SliceTensor {
  std::string name;
  std::vector<int64_t> shape;
  float deviation = 0.02F;
  float mean = 0;
};

/// A file of them.
struct SliceShard {
  std::string file;
  uint64_t seed = 0;
  std::vector<SliceTensor> tensors;
};

/// A checkpoint with the layer shapes and, unless another is asked for, the vocabulary of a released model, but few of its
/// layers.
struct ModelSlice {
  nlohmann::ordered_json config;  // config.json
  std::vector<SliceShard> shards;
};

/// "35b", "122b", "397b" and "27b", which is dense (Qwen3.5), "next-80b" (Qwen3-Next), "lfm2-8b" (LFM2-8B-A1B).
std::vector<std::string> slice_names();

/// Whether a slice has the layer that guesses further tokens, where the family has one.
enum class MtpPart : uint8_t { kNone, kLayer };

/// `name` is one of slice_names(); `vocab` 0: the released model's. Throws Error{kInvalidArgument} for an MTP layer of a family
/// without one.
ModelSlice make_slice(const std::string& name, int64_t num_layers, MtpPart mtp = MtpPart::kNone, int64_t vocab = 0);

}  // namespace ferry
