#include "runtime/model/source_config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/checkpoint/tensor_reader.h"
#include "tests/support/expect_error.h"
#include "tests/support/source_folder.h"

namespace ferry {
namespace {

using nlohmann::json;

const std::filesystem::path kPacked = test::source_folder() / "tests/golden/packed_weights";

SourceFormat read(const json& quantization_config) {
  const json config{{"quantization_config", quantization_config}};
  return read_source_format(ConfigFields(config, "config.json"));
}

json read_cases() {
  std::ifstream file(kPacked / "cases.json");
  return json::parse(file);
}

/// What compressed-tensors, AutoAWQ and AutoRound have packed, with the values that they give it.
TEST(SourceConfig, WeightsOfOtherToolsHaveTheValuesThatTheseGiveThem) {
  const Checkpoint checkpoint = Checkpoint::open(kPacked);
  const json cases = read_cases();
  ASSERT_EQ(cases.size(), 11U);
  for (const auto& [name, packed] : cases.items()) {
    TensorReader reader(checkpoint, DType::kF32, /*check_finite=*/true);
    reader.set_source_format(read(packed.at("quantization_config")));
    const auto shape = packed.at("shape").get<std::vector<int64_t>>();
    const Matrix values = reader.read_matrix({reader.find(name + ".weight", shape)});
    const Matrix expected = reader.read_matrix({reader.find("values." + name, shape)});
    for (int64_t r = 0; r < shape[0]; ++r) {
      for (int64_t c = 0; c < shape[1]; ++c)
        ASSERT_EQ(values.view().row<float>(r)[c], expected.view().row<float>(r)[c]) << name << " " << r << ", " << c;
    }
    for (const std::string_view tensor : checkpoint.names())
      EXPECT_EQ(reader.is_used(tensor), tensor.starts_with(name + ".") || tensor == "values." + name) << name << ": " << tensor;
  }
}

/// Their codes, as products take them.
TEST(SourceConfig, CodesOfOtherToolsStandForTheSameValues) {
  const Checkpoint checkpoint = Checkpoint::open(kPacked);
  for (const auto& [name, group] :
       std::map<std::string, int32_t>{{"awq", 32}, {"autoround_zeros", 32}, {"ints4_group", 32}, {"ints4_zeros", 32}}) {
    TensorReader reader(checkpoint, DType::kF32, /*check_finite=*/true);
    const json packed = read_cases().at(name);
    reader.set_source_format(read(packed.at("quantization_config")));
    const auto shape = packed.at("shape").get<std::vector<int64_t>>();
    const StoredRows stored = reader.find(name + ".weight", shape);
    const QuantizedMatrix codes = reader.read_quantized({stored}, {WeightFormat::kInt4, group, true});
    const Matrix expected = reader.read_matrix({reader.find("values." + name, shape)});
    for (int64_t r = 0; r < shape[0]; ++r) {
      for (int64_t c = 0; c < shape[1]; ++c) {
        const float value = expected.view().row<float>(r)[c];
        ASSERT_NEAR(codes.value(r, c), value, std::abs(value) * 0x1p-20F) << name << " " << r << ", " << c;
      }
    }
  }
}

TEST(SourceConfig, ShapesAndNumbersAreChecked) {
  const Checkpoint checkpoint = Checkpoint::open(kPacked);
  const json cases = read_cases();
  const auto expect_refused = [&](const char* name, std::vector<int64_t> shape, json config,
                                  const std::vector<std::string>& parts) {
    TensorReader reader(checkpoint, DType::kF32, /*check_finite=*/true);
    reader.set_source_format(read(config));
    test::expect_error([&] { reader.find(std::string(name) + ".weight", shape); }, ErrorCode::kInvalidArgument, parts);
  };
  const auto config_of = [&](const char* name) { return cases.at(name).at("quantization_config"); };
  expect_refused("awq", {64, 88}, config_of("awq"), {"awq.qweight", "[96, 8]", "[88, 8]"});
  // A matrix of 32 rows would fit in codes of 8 bits, which AWQ does not have.
  expect_refused("awq", {32, 96}, config_of("awq"), {"awq.qweight", "[96, 8]", "[96, 4]"});
  expect_refused("ints4_channel", {21, 89}, config_of("ints4_channel"), {"weight_shape", "[21, 90]", "[21, 89]"});
  expect_refused("ints4_group", {24, 96}, config_of("ints4_zeros"), {"ints4_group.weight_zero_point", "missing"});
  expect_refused("floats_block", {40, 72}, config_of("floats_channel"), {"floats_block.weight_scale", "[3, 3]", "[40, 1]"});
}

TEST(SourceConfig, WhatIsNotReadIsRefusedByName) {
  const auto expect_refused = [](const json& config, std::vector<std::string> parts) {
    parts.emplace_back("quantization_config");
    test::expect_error([&] { read(config); }, ErrorCode::kInvalidArgument, parts);
  };
  expect_refused({{"quant_method", "bitsandbytes"}}, {"\"bitsandbytes\"", "\"awq\"", "\"compressed-tensors\"", "float32"});
  expect_refused({{"bits", 4}}, {"no method"});
  expect_refused({{"quant_method", "fp8"}}, {"weight_block_size"});
  expect_refused({{"quant_method", "fp8"}, {"weight_block_size", {128, 0}}}, {"weight_block_size"});
  expect_refused({{"quant_method", "gptq"}, {"bits", 3}, {"group_size", 128}}, {"bits is 3", "4 or 8"});
  expect_refused({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 0}}, {"group_size is 0", "-1"});
  expect_refused({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"version", "gemv"}}, {"\"gemv\"", "\"gemm\""});
  expect_refused({{"quant_method", "auto-round"}, {"bits", 8}, {"group_size", 128}, {"packing_format", "auto_round:auto_awq"}},
                 {"bits is 8", "allowed: 4"});
  json config = read_cases().at("ints4_group").at("quantization_config");
  EXPECT_EQ(read(config).group_size, 32);
  const auto expect_refused_with = [&](const json::json_pointer& at, const json& value, const std::vector<std::string>& parts) {
    json changed = config;
    changed[at] = value;
    expect_refused(changed, parts);
  };
  using Pointer = json::json_pointer;
  expect_refused_with(Pointer("/format"), "nvfp4-pack-quantized", {"format is \"nvfp4-pack-quantized\"", "\"pack-quantized\""});
  expect_refused_with(Pointer("/config_groups/group_0/weights/num_bits"), 2, {"num_bits is 2", "4 or 8"});
  expect_refused_with(Pointer("/config_groups/group_0/weights/strategy"), "tensor", {"\"tensor\"", "\"group\""});
  expect_refused_with(Pointer("/config_groups"), json::object(), {"config_groups", "one group"});
  expect_refused_with(Pointer("/config_groups/group_0"), 7, {"group_0", "an object"});
  expect_refused_with(Pointer("/sparsity_config"), {{"format", "sparse-bitmask"}}, {"sparse-bitmask", "dense"});
  expect_refused_with(Pointer("/transform_config"), {{"config_groups", {{"R1", 1}}}}, {"transform_config", "none"});
  json other = config["config_groups"]["group_0"];
  other["weights"]["num_bits"] = 8;
  config["config_groups"]["group_1"] = other;
  EXPECT_EQ(read(config).group_size, 32) << "widths may differ";
  expect_refused_with(Pointer("/config_groups/group_1/weights/group_size"), 64, {"config_groups", "differ"});
}

}  // namespace
}  // namespace ferry
