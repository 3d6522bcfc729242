#include "profiler/report/views/layer_names.h"

#include <gtest/gtest.h>

#include "profiler/span_record.h"

namespace ferry {
namespace {

TEST(LayerNamesTest, AreThoseOfTheCheckpoint) {
  const std::vector<std::string> types{"linear_attention", "full_attention", "mtp"};
  EXPECT_EQ(model_name_of(Zone::kInProjQkv, 0, types), "model.layers.0.linear_attn");
  EXPECT_EQ(model_name_of(Zone::kQProj, 1, types), "model.layers.1.self_attn");
  EXPECT_EQ(model_name_of(Zone::kInputNorm, 1, types), "model.layers.1.input_layernorm");
  EXPECT_EQ(model_name_of(Zone::kRouter, 1, types), "model.layers.1.mlp.gate");
  EXPECT_EQ(model_name_of(Zone::kGroupedDown, 1, types), "model.layers.1.mlp.experts");
  EXPECT_EQ(model_name_of(Zone::kSharedDown, 1, types), "model.layers.1.mlp.shared_expert");
  EXPECT_EQ(model_name_of(Zone::kAdd, 1, types), "model.layers.1");
  EXPECT_EQ(model_name_of(Zone::kQProj, 2, types), "mtp.layers.0.self_attn");
  EXPECT_EQ(model_name_of(Zone::kMtpFc, 2, types), "mtp.fc");
  EXPECT_EQ(model_name_of(Zone::kFinalNorm, 2, types), "mtp.norm");
  EXPECT_EQ(model_name_of(Zone::kLmHead, 2, types), "lm_head") << "it is the model's";
  EXPECT_EQ(model_name_of(Zone::kFinalNorm, kNoLayer, types), "model.norm");
  EXPECT_EQ(model_name_of(Zone::kEmbedding, kNoLayer, types), "model.embed_tokens");
  EXPECT_EQ(model_name_of(Zone::kVisionAttention, kNoLayer, types), "model.visual");
  EXPECT_EQ(model_name_of(Zone::kSample, kNoLayer, types), "");
  EXPECT_EQ(model_name_of(Zone::kQProj, 9, {}), "model.layers.9.self_attn") << "a layer that the capture says nothing of";
}

TEST(LayerNamesTest, ModelsWithShortConvolutionsCallTheirsOtherwise) {
  const std::vector<std::string> types{"short_conv", "full_attention"};
  EXPECT_EQ(model_name_of(Zone::kConvGate, 0, types), "model.layers.0.conv");
  EXPECT_EQ(model_name_of(Zone::kInputNorm, 0, types), "model.layers.0.operator_norm");
  EXPECT_EQ(model_name_of(Zone::kDenseDown, 0, types), "model.layers.0.feed_forward");
  EXPECT_EQ(model_name_of(Zone::kGroupedDown, 1, types), "model.layers.1.feed_forward.experts");
}

}  // namespace
}  // namespace ferry
