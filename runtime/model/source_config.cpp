#include "runtime/model/source_config.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {
namespace {

using nlohmann::json;
using Kind = SourceFormat::Kind;

constexpr const char* kAllowed =
    "\"fp8\" in blocks, \"gptq\", \"awq\", \"auto-round\", \"compressed-tensors\" in the format pack-quantized or "
    "float-quantized, or "
    "plain float32, bfloat16 and float16 weights";

/// -1 stands for whole rows.
int64_t read_group_size(const ConfigFields& q) {
  const int64_t size = q.integer("group_size", -1, kMaxDim);
  if (size == 0) q.fail("group_size", "-1 or 1 and more");
  return size == -1 ? 0 : size;
}

SourceFormat read_block(const ConfigFields& q, const char* key) {
  const std::vector<int64_t> block = q.integers(key, kMaxDim, 2);
  if (block.size() != 2 || block[0] < 1 || block[1] < 1) {
    throw_invalid(q.where() + ": " + key + " is " + (q.has(key) ? shown(q.at(key)) : "missing") +
                  "; allowed: two sizes of 1 or more");
  }
  return {.kind = Kind::kFp8Block, .block_rows = block[0], .block_cols = block[1]};
}

SourceFormat read_fp8(const ConfigFields& q) {
  q.expect("fmt", {"e4m3"});
  return read_block(q, "weight_block_size");
}

SourceFormat read_gptq(const ConfigFields& q) {
  q.expect("bits", {4, 8});
  q.expect("checkpoint_format", {"gptq", "gptq_v2"});
  const bool is_v2 = q.has("checkpoint_format") && q.at("checkpoint_format") == "gptq_v2";
  return {.kind = Kind::kIntegers,
          .layout = &kGptq,
          .group_size = read_group_size(q),
          .zero_offset = is_v2 ? 0 : 1,
          .has_group_index = true};
}

SourceFormat read_awq(const ConfigFields& q) {
  q.expect("bits", {4});
  q.expect("version", {"gemm", "GEMM"});
  q.expect("zero_point", {true});
  return {.kind = Kind::kIntegers, .layout = &kAwq, .group_size = read_group_size(q)};
}

/// Words as GPTQ has them, or AWQ; columns are always in their own order.
SourceFormat read_auto_round(const ConfigFields& q) {
  q.expect("bits", {4, 8});
  q.expect("data_type", {"int"});
  q.expect("packing_format", {"auto_round", "auto_round:gptqmodel", "auto_round:auto_gptq", "auto_round:auto_awq"});
  const json packing = q.has("packing_format") ? q.at("packing_format") : json("auto_round:auto_gptq");
  if (packing == "auto_round:auto_awq") q.expect("bits", {4});
  return {.kind = Kind::kIntegers,
          .layout = packing == "auto_round:auto_awq" ? &kAwq : &kGptq,
          .group_size = read_group_size(q),
          .zero_offset = packing == "auto_round:auto_gptq" ? 1 : 0};
}

/// Integers in words: "weights" of a group of compressed-tensors.
SourceFormat read_packed_weights(const ConfigFields& weights) {
  weights.expect("type", {"int"});
  weights.expect("num_bits", {4, 8});
  weights.expect("strategy", {"group", "channel"});
  weights.expect("actorder", {"weight", "static", "group", "dynamic", false});
  const bool is_by_group = weights.at("strategy") == "group";
  const bool is_reordered =
      weights.has("actorder") && (weights.at("actorder") == "group" || weights.at("actorder") == "dynamic");
  return {.kind = Kind::kIntegers,
          .layout = &kPackQuantized,
          .group_size = is_by_group ? weights.integer("group_size", 1, kMaxDim) : 0,
          .has_zeros = !weights.boolean_or("symmetric", true),
          .has_group_index = is_by_group && is_reordered};
}

/// e4m3, likewise.
SourceFormat read_float_weights(const ConfigFields& weights) {
  weights.expect("type", {"float"});
  weights.expect("num_bits", {8});
  weights.expect("strategy", {"block", "channel"});
  weights.expect("symmetric", {true});
  SourceFormat format{.kind = Kind::kFp8Block, .block_rows = 1, .block_cols = 0};
  if (weights.at("strategy") == "block") format = read_block(weights, "block_structure");
  format.scale_suffix = "_scale";
  return format;
}

/// "pack-quantized" or "float-quantized", said of a group of modules or of all.
SourceFormat read_group(const ConfigFields& group, const ConfigFields& all) {
  const ConfigFields& says = group.has("format") ? group : all;
  const json format = says.has("format") ? says.at("format") : json();
  if (format == "pack-quantized") return read_packed_weights(group.object("weights"));
  if (format == "float-quantized") return read_float_weights(group.object("weights"));
  throw_invalid(says.where() + ": format is " + (format.is_null() ? "missing" : shown(format)) +
                "; allowed: \"pack-quantized\", \"float-quantized\"");
}

/// All groups of modules must be stored in one way; their widths may differ.
SourceFormat read_compressed_tensors(const ConfigFields& q) {
  q.expect("quantization_status", {"compressed"});
  if (q.has("sparsity_config")) q.object("sparsity_config").expect("format", {"dense"});
  if (q.has("transform_config") && q.object("transform_config").has("config_groups")) q.fail("transform_config", "none");
  const ConfigFields groups = q.object("config_groups");
  std::optional<SourceFormat> found;
  for (const auto& [name, object] : q.at("config_groups").items()) {
    const SourceFormat format = read_group(groups.object(name.c_str()), q);
    if (found && !(format == *found)) q.fail("config_groups", "groups that differ in targets and num_bits alone");
    found = format;
  }
  if (!found) q.fail("config_groups", "one group or more");
  return *found;
}

}  // namespace

SourceFormat read_source_format(const ConfigFields& top) {
  if (!top.has("quantization_config")) return {};
  const ConfigFields q = top.object("quantization_config");
  const json method = q.has("quant_method") ? q.at("quant_method") : json();
  if (method == "fp8") return read_fp8(q);
  if (method == "gptq") return read_gptq(q);
  if (method == "awq") return read_awq(q);
  if (method == "auto-round") return read_auto_round(q);
  if (method == "compressed-tensors") return read_compressed_tensors(q);
  throw_invalid("config.json: quantization_config of " + (method.is_null() ? "no method" : shown(method)) +
                "; allowed: " + kAllowed);
}

}  // namespace ferry
