#include <gtest/gtest.h>

#include <atomic>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "runtime/model/weights_loader.h"
#include "tests/support/expect_error.h"
#include "tests/support/load_experts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_stream.h"
#include "tests/support/tiny_model.h"

namespace ferry {
namespace {

using test::expect_error;
using test::TinyModel;
using test::TinyModelOptions;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
const std::string kLayers = "model.language_model.layers.";

/// Packs every matrix as a plain one, so that gated ones can be read back, too; remembers how many were to be gated.
class PlainMatmul final : public Matmul {
 public:
  const char* name() const override { return "plain"; }
  std::unique_ptr<PackedMatrix> pack(ConstMatrixView weights, WeightUse use, ThreadPool*) override {
    num_gated += use == WeightUse::kGated ? 1 : 0;
    return ref_->pack(weights, WeightUse::kPlain);
  }
  std::unique_ptr<PackedMatrix> pack(const QuantizedMatrix& weights, WeightUse use, ThreadPool*) override {
    num_gated += use == WeightUse::kGated ? 1 : 0;
    return ref_->pack(weights, WeightUse::kPlain);
  }
  void grouped_matmul(Stream& stream, const GroupedMatmulArgs& args) override { ref_->grouped_matmul(stream, args); }

  std::atomic<int> num_gated{0};

 private:
  std::unique_ptr<Matmul> ref_ = make_ref_matmul();
};

/// The matrix that was packed: multiplying the unit vectors gives its columns, exactly.
std::vector<float> unpack(Matmul& matmul, const PackedMatrix& packed) {
  test::TestStream stream(1);
  const DType dtype = packed.type() == plain_weights(DType::kF32) ? DType::kF32 : DType::kBF16;
  Matrix unit(dtype, packed.k(), packed.k()), columns(dtype, packed.k(), packed.n());
  std::vector<float> values(static_cast<std::size_t>(packed.n() * packed.k()));
  visit_dtype(dtype, [&]<class T>() {
    for (int64_t i = 0; i < packed.k(); ++i) unit.view().row<T>(i)[i] = from_float<T>(1.0F);
    matmul.matmul(stream, {unit.view()}, packed, columns.view());
    for (int64_t row = 0; row < packed.n(); ++row) {
      for (int64_t col = 0; col < packed.k(); ++col)
        values[static_cast<std::size_t>(row * packed.k() + col)] = to_float(columns.view().row<T>(col)[row]);
    }
  });
  return values;
}

/// A written checkpoint and what was read of it.
struct Loaded {
  explicit Loaded(const TinyModel& model, const LoadOptions& options = {.dtype = DType::kBF16}, int num_shards = 1)
      : load_options(options) {
    model.write(dir.path(), num_shards);
    config = load_config(dir.path());
    checkpoint = Checkpoint::open(dir.path());
  }
  TrunkWeights trunk() { return load_trunk(*checkpoint, config, backend, pool, load_options); }
  ExpertBank experts(int num_ranks = 1, int32_t rank_idx = 0) {
    std::vector<Rank> ranks;
    for (int r = 0; r < num_ranks; ++r) ranks.push_back({r});
    return load_experts(*checkpoint, config, ExpertMap::contiguous(config.moe.num_experts, ranks), rank_idx, backend.matmul(),
                        pool, load_options);
  }
  PlainMatmul& matmul() { return static_cast<PlainMatmul&>(backend.matmul()); }
  static std::vector<float> values(const Array<float>& array) {
    return {array.data().host(), array.data().host() + array.size()};
  }
  std::vector<float> values(const PackedPtr& packed) { return unpack(backend.matmul(), *packed); }
  std::vector<float> values(const PackedMatrix* packed) { return unpack(backend.matmul(), *packed); }

  test::TempFolder dir;
  LoadOptions load_options;
  ModelConfig config;
  std::optional<Checkpoint> checkpoint;
  Backend backend{"plain", {}, std::make_unique<PlainMatmul>()};
  ThreadPool pool{2};
};

/// Element `i` of a tensor as the checkpoint stores it.
float stored(const TinyModel& model, const std::string& name, std::size_t i) {
  const test::TinyTensor& tensor = model.tensors.at(name);
  if (tensor.dtype == StoredType::kF32) {
    float value;
    std::memcpy(&value, tensor.data.data() + i * sizeof(float), sizeof(float));
    return value;
  }
  bfloat16 value;
  std::memcpy(&value, tensor.data.data() + i * sizeof(value), sizeof(value));
  return to_float(value);
}

std::vector<float> all_stored(const TinyModel& model, const std::string& name) {
  std::vector<float> values;
  const test::TinyTensor& tensor = model.tensors.at(name);
  for (std::size_t i = 0; i < tensor.data.size() / static_cast<std::size_t>(stored_type_bytes(tensor.dtype)); ++i)
    values.push_back(stored(model, name, i));
  return values;
}

std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = round_to<bfloat16>(value);
  return values;
}

/// What norms are multiplied with, of what is stored.
std::vector<float> factors(std::vector<float> values) {
  for (float& value : values) value = 1.0F + value;
  return values;
}

void expect_refused(const TinyModel& model, const std::vector<std::string>& parts, bool check_finite = false) {
  Loaded loaded(model, {.dtype = DType::kBF16, .check_finite = check_finite, .progress = {}});
  expect_error([&] { loaded.trunk(); }, ErrorCode::kInvalidArgument, parts);
}

TEST(Weights, EveryTensorGoesToItsField) {
  const TinyModel model;
  Loaded loaded(model);
  const TrunkWeights trunk = loaded.trunk();
  EXPECT_EQ(loaded.values(trunk.lm_head), all_stored(model, "lm_head.weight"));
  EXPECT_EQ(loaded.values(trunk.norm), factors(all_stored(model, "model.language_model.norm.weight")));
  ASSERT_EQ(trunk.layers.size(), 3U);
  EXPECT_EQ(loaded.values(trunk.layers[2].mixer_norm), factors(all_stored(model, kLayers + "2.input_layernorm.weight")));
  EXPECT_EQ(loaded.values(trunk.layers[2].ffn_norm), factors(all_stored(model, kLayers + "2.post_attention_layernorm.weight")));
  const auto& deltanet = std::get<GatedDeltaWeights>(trunk.layers[2].mixer);
  const std::string linear = kLayers + "2.linear_attn.";
  EXPECT_EQ(loaded.values(deltanet.in_proj_qkv), all_stored(model, linear + "in_proj_qkv.weight"));
  EXPECT_EQ(loaded.values(deltanet.in_proj_z), all_stored(model, linear + "in_proj_z.weight"));
  EXPECT_EQ(loaded.values(deltanet.in_proj_b), all_stored(model, linear + "in_proj_b.weight"));
  EXPECT_EQ(loaded.values(deltanet.in_proj_a), all_stored(model, linear + "in_proj_a.weight"));
  EXPECT_EQ(loaded.values(deltanet.out_proj), all_stored(model, linear + "out_proj.weight"));
  EXPECT_EQ(loaded.values(deltanet.conv1d), all_stored(model, linear + "conv1d.weight"));
  EXPECT_EQ(loaded.values(deltanet.a_log), all_stored(model, linear + "A_log"));
  EXPECT_EQ(loaded.values(deltanet.dt_bias), all_stored(model, linear + "dt_bias"));
  EXPECT_EQ(loaded.values(deltanet.norm), all_stored(model, linear + "norm.weight"));
  const auto& attention = std::get<AttentionWeights>(trunk.layers[1].mixer);
  const std::string self = kLayers + "1.self_attn.";
  EXPECT_EQ(loaded.values(attention.q_proj), all_stored(model, self + "q_proj.weight"));
  EXPECT_EQ(loaded.values(attention.k_proj), all_stored(model, self + "k_proj.weight"));
  EXPECT_EQ(loaded.values(attention.v_proj), all_stored(model, self + "v_proj.weight"));
  EXPECT_EQ(loaded.values(attention.o_proj), all_stored(model, self + "o_proj.weight"));
  EXPECT_EQ(loaded.values(attention.q_norm), factors(all_stored(model, self + "q_norm.weight")));
  EXPECT_EQ(loaded.values(attention.k_norm), factors(all_stored(model, self + "k_norm.weight")));
  const auto& moe = std::get<MoeWeights>(trunk.layers[1].ffn);
  const std::string mlp = kLayers + "1.mlp.";
  std::vector<float> gate_up = all_stored(model, mlp + "shared_expert.gate_proj.weight");
  const std::vector<float> up = all_stored(model, mlp + "shared_expert.up_proj.weight");
  gate_up.insert(gate_up.end(), up.begin(), up.end());
  EXPECT_EQ(loaded.values(moe.router), all_stored(model, mlp + "gate.weight"));
  EXPECT_EQ(loaded.values(moe.shared_gate_up), gate_up);
  EXPECT_EQ(loaded.values(moe.shared_down), all_stored(model, mlp + "shared_expert.down_proj.weight"));
  EXPECT_EQ(loaded.values(moe.shared_expert_gate), all_stored(model, mlp + "shared_expert_gate.weight"));
}

TEST(Weights, PackedAndPerExpertFormsAndShardsGiveTheSameBits) {
  const TinyModel packed_model, per_expert_model({.packed_experts = false});
  Loaded packed(packed_model), per_expert(per_expert_model), sharded(packed_model, {.dtype = DType::kBF16}, 5);
  const ExpertBank a = packed.experts(), b = per_expert.experts(), c = sharded.experts();
  ASSERT_EQ(a.num_local_experts(), 11);
  ASSERT_EQ(b.num_local_experts(), 11);
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (std::size_t e = 0; e < 11; ++e) {
      const std::vector<float> gate_up = packed.values(a.gate_up(layer)[e]), down = packed.values(a.down(layer)[e]);
      EXPECT_EQ(gate_up, per_expert.values(b.gate_up(layer)[e])) << "layer " << layer << " expert " << e;
      EXPECT_EQ(down, per_expert.values(b.down(layer)[e])) << "layer " << layer << " expert " << e;
      EXPECT_EQ(gate_up, sharded.values(c.gate_up(layer)[e])) << "layer " << layer << " expert " << e;
      EXPECT_EQ(down, sharded.values(c.down(layer)[e])) << "layer " << layer << " expert " << e;
      EXPECT_EQ(gate_up.front(),
                stored(packed_model, kLayers + std::to_string(layer) + ".mlp.experts.gate_up_proj", e * 2 * 24 * 72));
    }
  }
  per_expert.trunk();
  sharded.trunk();
}

TEST(Weights, Float32IsRoundedOnceForABfloat16RunAndVectorsAreKept) {
  const TinyModel model({.dtype = StoredType::kF32});
  Loaded loaded(model, {.dtype = DType::kBF16});
  const TrunkWeights trunk = loaded.trunk();
  const ExpertBank bank = loaded.experts();
  const auto& deltanet = std::get<GatedDeltaWeights>(trunk.layers[0].mixer);
  const std::string linear = kLayers + "0.linear_attn.";
  EXPECT_EQ(deltanet.in_proj_qkv->type(), plain_weights(DType::kBF16));
  EXPECT_EQ(loaded.values(deltanet.in_proj_qkv), rounded(all_stored(model, linear + "in_proj_qkv.weight")));
  EXPECT_EQ(loaded.values(trunk.lm_head), rounded(all_stored(model, "lm_head.weight")));
  std::vector<float> expert = loaded.values(bank.down(1)[4]);
  for (std::size_t i = 0; i < expert.size(); ++i) {
    ASSERT_EQ(expert[i], round_to<bfloat16>(stored(model, kLayers + "1.mlp.experts.down_proj", 4 * expert.size() + i)));
  }
  EXPECT_EQ(loaded.values(deltanet.a_log), all_stored(model, linear + "A_log")) << "kept in f32";
  EXPECT_EQ(loaded.values(deltanet.dt_bias), all_stored(model, linear + "dt_bias"));
  EXPECT_EQ(loaded.values(deltanet.norm), all_stored(model, linear + "norm.weight"));
  EXPECT_EQ(deltanet.norm_dtype, DType::kF32);
  EXPECT_EQ(loaded.values(trunk.layers[0].mixer_norm), factors(all_stored(model, kLayers + "0.input_layernorm.weight")));
  EXPECT_NE(rounded(loaded.values(deltanet.a_log)), loaded.values(deltanet.a_log))
      << "the test needs values that bf16 cannot hold";
  EXPECT_EQ(std::get<GatedDeltaWeights>(Loaded(TinyModel()).trunk().layers[0].mixer).norm_dtype, DType::kBF16);
}

TEST(Weights, Bfloat16IsWidenedForAFloat32Run) {
  const TinyModel model;
  Loaded loaded(model, {.dtype = DType::kF32});
  const TrunkWeights trunk = loaded.trunk();
  EXPECT_EQ(trunk.lm_head->type(), plain_weights(DType::kF32));
  EXPECT_EQ(loaded.values(trunk.lm_head), all_stored(model, "lm_head.weight"));
}

TEST(Weights, TiedEmbeddingsAndTextOnlyNames) {
  const TinyModel model({.tie_embeddings = true, .prefix = "model."});
  ASSERT_FALSE(model.tensors.contains("lm_head.weight"));
  Loaded loaded(model);
  const TrunkWeights trunk = loaded.trunk();
  EXPECT_EQ(loaded.values(trunk.lm_head), all_stored(model, "model.embed_tokens.weight"));
  loaded.experts();
}

TEST(Weights, PartsOfOtherModelsAreLeftAlone) {
  TinyModel model;
  model.tensors["mtp.fc.weight"] = model.tensors.at("lm_head.weight");
  model.tensors["model.visual.patch_embed.proj.weight"] = model.tensors.at("lm_head.weight");
  model.tensors[kLayers + "1.self_attn.rotary_emb.inv_freq"] = {StoredType::kF64, {5}, std::vector<std::byte>(40)};
  Loaded(model).trunk();
}

TEST(Weights, MissingTensors) {
  const TinyModel complete({.packed_experts = false});
  for (const auto& [name, tensor] : complete.tensors) {
    TinyModel model = complete;
    model.tensors.erase(name);
    // Without expert 0's gate the experts are taken for packed ones.
    const bool looks_packed = name.ends_with("experts.0.gate_proj.weight");
    const std::string named = looks_packed ? name.substr(0, name.find("0.gate_proj")) + "gate_up_proj" : name;
    expect_refused(model, {"checkpoint: tensor", named, "missing"});
  }
}

TEST(Weights, WrongShapes) {
  const TinyModel complete;
  for (const auto& [name, tensor] : complete.tensors) {
    TinyModel model = complete;
    test::TinyTensor& damaged = model.tensors.at(name);
    damaged.shape.front() += 1;
    const int64_t row = static_cast<int64_t>(damaged.data.size()) / tensor.shape.front();
    damaged.data.resize(damaged.data.size() + static_cast<std::size_t>(row));
    expect_refused(model, {"model.safetensors: tensor", name, "has shape [" + std::to_string(tensor.shape.front() + 1),
                           "config.json asks for [" + std::to_string(tensor.shape.front())});
  }
  TinyModel transposed;
  std::swap(transposed.tensors.at("lm_head.weight").shape[0], transposed.tensors.at("lm_head.weight").shape[1]);
  expect_refused(transposed, {"lm_head.weight", "[72, 97]", "[97, 72]"});
  TinyModel flat;
  flat.tensors.at(kLayers + "0.mlp.gate.weight").shape = {11 * 72};
  expect_refused(flat, {"mlp.gate.weight", "[792]", "[11, 72]"});
}

TEST(Weights, WrongTypes) {
  for (const StoredType type : {StoredType::kI32, StoredType::kF8E4M3, StoredType::kF64}) {
    TinyModel model;
    for (const std::string& name :
         {kLayers + "0.linear_attn.A_log", kLayers + "1.mlp.experts.down_proj", std::string("lm_head.weight")}) {
      TinyModel damaged = model;
      test::TinyTensor& tensor = damaged.tensors.at(name);
      tensor.data.resize(tensor.data.size() / 2 * static_cast<std::size_t>(stored_type_bytes(type)));
      tensor.dtype = type;
      expect_refused(damaged, {"model.safetensors: tensor", name, stored_type_name(type), "allowed: F32, BF16, F16"});
    }
  }
}

TEST(Weights, TensorsThatTheConfigDoesNotAccountFor) {
  for (const std::string& extra :
       {kLayers + "3.input_layernorm.weight", kLayers + "0.self_attn.q_proj.weight", std::string("model.language_model.extra"),
        kLayers + "0.mlp.experts.11.gate_proj.weight", kLayers + "1.self_attn.q_proj.bias"}) {
    TinyModel model;
    model.tensors[extra] = model.tensors.at(kLayers + "0.input_layernorm.weight");
    expect_refused(model, {extra, "does not belong to the model that config.json describes"});
  }
}

TEST(Weights, NotANumberIsNamedOnlyWhenAskedFor) {
  struct Damage {
    std::string name;
    int64_t element;
    float value;
    std::string place;
  };
  for (const Damage& damage :
       {Damage{kLayers + "1.self_attn.k_proj.weight", 3 * 72 + 5, kNaN, "nan at row 3, column 5"},
        Damage{kLayers + "2.linear_attn.A_log", 3, INFINITY, "inf at row 0, column 3"},
        Damage{kLayers + "0.mlp.shared_expert.up_proj.weight", 72, -INFINITY, "-inf at row 1, column 0"},
        Damage{"model.language_model.embed_tokens.weight", 96 * 72 + 71, kNaN, "nan at row 96, column 71"}}) {
    TinyModel model;
    model.tensors.at(damage.name).set(damage.element, damage.value);
    expect_refused(model, {"model.safetensors: tensor", damage.name, damage.place, "must be finite"}, true);
    Loaded(model).trunk();
  }
  for (const bool packed : {true, false}) {
    TinyModel model({.packed_experts = packed});
    const std::string name = kLayers + (packed ? "2.mlp.experts.down_proj" : "2.mlp.experts.6.down_proj.weight");
    model.tensors.at(name).set((packed ? 6 * 72 * 24 : 0) + 24, kNaN);
    Loaded strict(model, {.dtype = DType::kBF16, .check_finite = true, .progress = {}});
    expect_error([&] { strict.experts(); }, ErrorCode::kInvalidArgument, {name, "nan at row", "column 0", "must be finite"});
    Loaded(model).experts();
  }
}

TEST(Weights, ARankReadsItsOwnExpertsOnly) {
  for (const bool packed : {true, false}) {
    TinyModel model({.packed_experts = packed});
    // Of 11 experts on 3 ranks the ranks hold 0-3, 4-7 and 8-10. Experts 3 and 8 are the second rank's neighbours.
    for (const int64_t expert : {3, 8}) {
      const std::string name =
          kLayers + (packed ? "1.mlp.experts.down_proj" : "1.mlp.experts." + std::to_string(expert) + ".down_proj.weight");
      for (int64_t i = 0; i < 72 * 24; ++i) model.tensors.at(name).set((packed ? expert * 72 * 24 : 0) + i, kNaN);
    }
    Loaded loaded(model, {.dtype = DType::kBF16, .check_finite = true, .progress = {}});
    const ExpertBank bank = loaded.experts(3, 1);
    ASSERT_EQ(bank.num_local_experts(), 4);
    for (const auto* matrix : bank.down(1)) {
      for (const float value : loaded.values(matrix)) ASSERT_TRUE(std::isfinite(value));
    }
    for (const int32_t rank_idx : {0, 2}) {
      expect_error([&] { loaded.experts(3, rank_idx); }, ErrorCode::kInvalidArgument,
                   {"layers.1.mlp.experts", "down_proj", "must be finite"});
    }
    const ExpertBank last = Loaded(TinyModel({.packed_experts = packed})).experts(3, 2);
    EXPECT_EQ(last.num_local_experts(), 3);
  }
}

TEST(Weights, ProgressCountsEveryByte) {
  const TinyModel model;
  int64_t bytes = 0;
  Loaded loaded(model, {.dtype = DType::kBF16, .check_finite = false, .progress = [&](int64_t done) { bytes += done; }});
  loaded.experts();
  EXPECT_EQ(bytes, 3 * 11 * (2 * 24 * 72 + 72 * 24) * 2);
}

}  // namespace
}  // namespace ferry
