#include "runtime/model/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace ferry {
namespace {

using nlohmann::json;
using test::expect_error;

class ConfigTest : public testing::Test {
 protected:
  ModelConfig load() {
    test::write_json(dir_.path() / "config.json", model_.config);
    if (!model_.generation.is_null()) test::write_json(dir_.path() / "generation_config.json", model_.generation);
    return load_config(dir_.path());
  }
  /// load() must refuse the config with a line that holds every string of `parts`.
  void expect_refused(const std::vector<std::string>& parts) {
    expect_error([&] { load(); }, ErrorCode::kInvalidArgument, parts);
  }
  /// The same for a valid config whose `key` of text_config is `value`.
  void expect_refused_text(const char* key, const json& value, const std::vector<std::string>& allowed) {
    const json before = text();
    text()[key] = value;
    std::vector<std::string> parts{"config.json", key, value.dump()};
    parts.insert(parts.end(), allowed.begin(), allowed.end());
    expect_refused(parts);
    text() = before;
  }
  json& text() { return model_.text(); }

  test::TinyModel model_;
  test::TempFolder dir_;
};

TEST_F(ConfigTest, KnowsTheIdsThatStandForPictures) {
  EXPECT_TRUE(load().placeholders.empty());
  model_.config["image_token_id"] = 17;
  model_.config["vision_end_token_id"] = 96;
  const std::vector<NamedTokenId> placeholders = load().placeholders;
  ASSERT_EQ(placeholders.size(), 2U);
  EXPECT_EQ(placeholders[0].name, "image_token_id");
  EXPECT_EQ(placeholders[0].id, 17);
  EXPECT_EQ(placeholders[1].id, 96);
  model_.config["video_token_id"] = 97;
  expect_refused({"config.json", "video_token_id", "97", "0 to 96"});
}

TEST_F(ConfigTest, ReadsEveryField) {
  model_.generation = {{"eos_token_id", {5, 7, 5}}, {"do_sample", true}, {"temperature", 0.7}, {"top_p", 0.8}, {"top_k", 20}};
  const ModelConfig config = load();
  EXPECT_EQ(config.name, dir_.path().filename().string());
  EXPECT_EQ(config.class_name, "Qwen3_5MoeForConditionalGeneration");
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_EQ(config.vocab_size, 97);
  EXPECT_EQ(config.hidden_dim, 72);
  EXPECT_EQ(config.max_context, 1024);
  EXPECT_FLOAT_EQ(config.norm.eps, 1e-6F);
  EXPECT_FALSE(config.tie_word_embeddings);
  const LayerPlan delta{Mixer::kGatedDelta, Ffn::kMixtureOfExperts}, attention{Mixer::kAttention, Ffn::kMixtureOfExperts};
  EXPECT_EQ(config.layers, (std::vector{delta, attention, delta}));
  EXPECT_EQ(config.num_layers_of(Mixer::kGatedDelta), 2);
  EXPECT_TRUE(config.norm.is_offset);
  EXPECT_TRUE(config.attention.has_gate);
  EXPECT_EQ(config.attention.num_heads, 4);
  EXPECT_EQ(config.attention.num_kv_heads, 2);
  EXPECT_EQ(config.attention.head_dim, 40);
  EXPECT_EQ(config.attention.rotary_dim, 10);
  EXPECT_EQ(config.attention.rope_theta, 1e7);
  EXPECT_EQ(config.attention.mrope_section, (std::array<int64_t, 3>{3, 1, 1}));
  EXPECT_EQ(config.gated_delta.num_k_heads, 2);
  EXPECT_EQ(config.gated_delta.num_v_heads, 4);
  EXPECT_EQ(config.gated_delta.conv_channels(), 2 * 40 + 112);
  EXPECT_EQ(config.gated_delta.conv_kernel, 4);
  EXPECT_EQ(config.moe.num_experts, 11);
  EXPECT_EQ(config.moe.top_k, 3);
  EXPECT_EQ(config.moe.intermediate_dim, 24);
  EXPECT_EQ(config.moe.shared_intermediate_dim, 36);
  EXPECT_EQ(config.generation.stop_token_ids, (std::vector<TokenId>{5, 7}));
  EXPECT_TRUE(config.generation.do_sample);
  EXPECT_EQ(config.generation.temperature, 0.7);
  EXPECT_EQ(config.generation.top_p, 0.8);
  EXPECT_EQ(config.generation.top_k, 20);
}

TEST_F(ConfigTest, FlatLayoutOfATextCheckpoint) {
  json flat = text();
  flat["dtype"] = "float32";
  flat["tie_word_embeddings"] = true;
  model_.config = flat;
  const ModelConfig config = load();
  EXPECT_EQ(config.hidden_dim, 72);
  EXPECT_EQ(config.dtype, DType::kF32);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.class_name, "");
  EXPECT_EQ(config.generation.stop_token_ids, std::vector<TokenId>{1}) << "from config.json, without generation_config.json";
}

TEST_F(ConfigTest, DefaultsOfAbsentKeys) {
  text().erase("layer_types");
  text()["num_hidden_layers"] = 9;
  text()["full_attention_interval"] = 3;
  text().erase("max_position_embeddings");
  text().erase("rms_norm_eps");
  text().erase("linear_conv_kernel_dim");
  text().erase("num_key_value_heads");
  text()["rope_parameters"].erase("mrope_section");
  text()["eos_token_id"] = nullptr;
  model_.config.erase("dtype");
  model_.config["torch_dtype"] = "float32";
  const ModelConfig config = load();
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(config.layers[static_cast<std::size_t>(i)].mixer == Mixer::kAttention, i % 3 == 2) << "layer " << i;
  }
  EXPECT_EQ(config.max_context, 32768);
  EXPECT_FLOAT_EQ(config.norm.eps, 1e-6F);
  EXPECT_EQ(config.gated_delta.conv_kernel, 4);
  EXPECT_EQ(config.attention.num_kv_heads, 4);
  EXPECT_EQ(config.attention.mrope_section, (std::array<int64_t, 3>{0, 0, 0}));
  EXPECT_EQ(config.dtype, DType::kF32);
  EXPECT_TRUE(config.generation.stop_token_ids.empty());
}

TEST_F(ConfigTest, MissingKeys) {
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "rope_parameters",
                          "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
                          "num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"}) {
    const json before = text();
    text().erase(key);
    expect_refused({"config.json", "missing key", std::string("'") + key + "'"});
    text()[key] = nullptr;
    expect_refused({"config.json", "missing key", std::string("'") + key + "'"});
    text() = before;
  }
  model_.config.erase("model_type");
  expect_refused({"config.json", "missing key 'model_type'"});
}

TEST_F(ConfigTest, WrongTypesAndRanges) {
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                          "head_dim", "max_position_embeddings", "linear_num_key_heads", "linear_num_value_heads",
                          "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "num_experts",
                          "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"}) {
    for (const json& value : {json("8"), json(1.5), json(0), json(-3), json(true), json::array({4}), json(uint64_t{1} << 63),
                              json(int64_t{1} << 40)}) {
      expect_refused_text(key, value, {"allowed: an integer from 1 to "});
    }
  }
  expect_refused_text("rms_norm_eps", "small", {"allowed: a number above 0"});
  expect_refused_text("rms_norm_eps", 0, {"allowed: a number above 0"});
  expect_refused_text("tie_word_embeddings", 1, {"allowed: true or false"});
  expect_refused_text("layer_types", "linear_attention", {"a list of num_hidden_layers = 3 kinds"});
  expect_refused_text("layer_types", json::array({"full_attention"}), {"a list of num_hidden_layers = 3 kinds"});
  expect_refused_text("num_experts_per_tok", 12, {"from 1 to 11"});
  expect_refused_text("num_key_value_heads", 5, {"from 1 to 4"});
}

TEST_F(ConfigTest, UnsupportedValues) {
  expect_refused_text("hidden_act", "gelu", {"allowed: \"silu\""});
  expect_refused_text("attention_bias", true, {"allowed: false"});
  expect_refused_text("attn_output_gate", false, {"allowed: true"});
  expect_refused_text("norm_topk_prob", false, {"allowed: true"});
  expect_refused_text("mlp_only_layers", json::array({0}), {"allowed: []"});
  expect_refused_text("output_gate_type", "sigmoid", {"allowed: \"swish\" or \"silu\""});
  expect_refused_text("model_type", "llama", {"qwen3_5_moe or qwen3_5_moe_text"});
  text()["layer_types"][1] = "sliding_attention";
  expect_refused({"config.json", "layer_types", "\"sliding_attention\"", "linear_attention, full_attention"});
}

TEST_F(ConfigTest, UnsupportedModels) {
  const json before = model_.config;
  model_.config["model_type"] = "llama";
  expect_refused({"config.json", "model_type", "\"llama\"", "allowed: qwen3_5_moe, "});
  model_.config = before;
  model_.config["quantization_config"] = {{"quant_method", "bitsandbytes"}};
  expect_refused({"config.json", "quantization_config", "\"bitsandbytes\"", "\"fp8\"", "\"gptq\"", "plain float32"});
  model_.config = before;
  model_.config["dtype"] = "float64";
  expect_refused({"config.json", "dtype", "\"float64\"", "\"float32\" or \"bfloat16\" or \"float16\""});
  model_.config["dtype"] = "float16";
  EXPECT_EQ(load().dtype, DType::kBF16) << "a run has no float16";
  model_.config = before;
  model_.config["text_config"] = 3;
  expect_refused({"config.json", "text_config", "3", "an object"});
}

TEST_F(ConfigTest, HeadCountsMustDivide) {
  expect_refused_text("num_key_value_heads", 3, {"a divisor of num_attention_heads"});
  expect_refused_text("linear_num_value_heads", 5, {"a multiple of linear_num_key_heads"});
}

TEST_F(ConfigTest, RotaryPositions) {
  const json before = text();
  json& rope = text()["rope_parameters"];
  rope["rope_type"] = "yarn";
  expect_refused({"rope_parameters", "rope_type", "\"yarn\"", "\"default\""});
  rope = before["rope_parameters"];
  rope["mrope_section"] = {3, 1, 2};
  expect_refused({"mrope_section", "[3,1,2]", "sum 5"});
  for (const json& section : {json::array({3, 2}), json::array({3, -1, 3}), json::array({3, 1.0, 1}), json("3,1,1")}) {
    rope["mrope_section"] = section;
    expect_refused({"mrope_section", section.dump(), "three counts"});
  }
  // The sum of what is written must not overflow on its way to the comparison.
  rope["mrope_section"] = {uint64_t{1} << 63, uint64_t{1} << 63, 5};
  expect_refused({"mrope_section", "three counts with the sum 5"});
  rope = before["rope_parameters"];
  rope.erase("rope_theta");
  expect_refused({"rope_parameters", "missing key 'rope_theta'"});
  rope = before["rope_parameters"];
  rope["partial_rotary_factor"] = 1.5;
  expect_refused({"partial_rotary_factor", "1.5", "at most 1"});
  rope["partial_rotary_factor"] = 0.23;  // 9.2 of 40
  expect_refused({"head_dim x partial_rotary_factor", "9", "even"});
  rope["partial_rotary_factor"] = 0.01;  // nothing is left to rotate
  expect_refused({"head_dim x partial_rotary_factor", "0"});
  text()["rope_parameters"] = "default";
  expect_refused({"rope_parameters", "\"default\"", "an object"});
}

TEST_F(ConfigTest, GenerationConfig) {
  const auto expect_refused_generation = [&](const json& generation, const std::vector<std::string>& parts) {
    model_.generation = generation;
    expect_refused(parts);
  };
  expect_refused_generation({{"eos_token_id", 97}}, {"generation_config.json", "eos_token_id", "97", "token ids from 0 to 96"});
  expect_refused_generation({{"eos_token_id", {3, -1}}},
                            {"generation_config.json", "eos_token_id", "[3,-1]", "token ids from 0 to 96"});
  expect_refused_generation({{"eos_token_id", "</s>"}}, {"generation_config.json", "eos_token_id", "token ids"});
  expect_refused_generation({{"eos_token_id", std::vector<int>(1025, 7)}}, {"eos_token_id", "[7,7,", "at most 1024 token ids"});
  expect_refused_generation({{"temperature", "hot"}}, {"generation_config.json", "temperature", "\"hot\"", "number"});
  expect_refused_generation({{"top_p", 1.5}}, {"generation_config.json", "top_p", "1.5", "at most 1"});
  expect_refused_generation({{"top_k", -4}}, {"generation_config.json", "top_k", "-4", "from 0"});
  expect_refused_generation({{"do_sample", "yes"}}, {"generation_config.json", "do_sample", "\"yes\"", "true or false"});
  expect_refused_generation(json::array({1}), {"generation_config.json", "not a JSON object"});
}

TEST_F(ConfigTest, FilesThatAreNoConfigs) {
  expect_error([&] { load_config(dir_.path() / "missing"); }, ErrorCode::kNotFound,
               {"--model", "missing", "not a checkpoint folder"});
  expect_error([&] { load_config(dir_.path()); }, ErrorCode::kNotFound, {"config.json", "No such file"});
  for (const char* contents : {"", "{", "[]", "{\"model_type\": \"qwen3_5_moe\",}", "\x80"}) {
    std::ofstream(dir_.path() / "config.json") << contents;
    expect_error([&] { load_config(dir_.path()); }, ErrorCode::kInvalidArgument, {"config.json", "JSON"});
  }
  std::ofstream(dir_.path() / "config.json") << std::string(200000, '[');
  expect_error([&] { load_config(dir_.path()); }, ErrorCode::kInvalidArgument, {"config.json", "JSON"});
}

TEST(GenerationDefaults, AnOperatorsSamplingTakesThePlaceOfTheCheckpoints) {
  GenerationDefaults defaults{.stop_token_ids = {1}, .temperature = 0.6, .top_k = 20};
  override_sampling(R"({"temperature":1,"min_p":0.1,"repetition_penalty":1.5,"max_new_tokens":7})", "--option", defaults);
  EXPECT_EQ(defaults.temperature, 1.0);
  EXPECT_EQ(defaults.top_k, 20);
  EXPECT_EQ(defaults.min_p, 0.1);
  EXPECT_EQ(defaults.repetition_penalty, 1.5);
  EXPECT_EQ(defaults.max_new_tokens, 7);
  EXPECT_EQ(defaults.stop_token_ids, std::vector<TokenId>{1});
  const auto refused = [&](const char* text, const std::string& word) {
    try {
      override_sampling(text, "--option", defaults);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("--option"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  };
  refused(R"({"temprature":1})", "'temprature' is unknown");
  refused(R"({"top_p":2})", "top_p");
  refused("[1]", "JSON object");
}

}  // namespace
}  // namespace ferry
