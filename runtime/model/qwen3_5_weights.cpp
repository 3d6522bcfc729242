#include "runtime/model/qwen3_5_weights.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "runtime/base/available_memory.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/tensor_reader.h"

// Names and shapes: Qwen3.5-MoE checkpoints as released (experts packed per layer) and as transformers 5.17 saves them (one
// tensor per expert and projection).

namespace ferry {
namespace {

/// A matrix to pack and where the result goes.
struct PackJob {
  StoredMatrix matrix;
  PackedPtr* target;
};

// Elements from which on a matrix is packed by all threads together: by one alone, it would keep the others waiting.
constexpr int64_t kLargeMatrix = int64_t{32} << 20;

/// Runs body(i) on the pool in batches, so that progress is told in between; rethrows the first error.
void run_jobs(ThreadPool& pool, int64_t num_jobs, const std::function<int64_t(int64_t)>& body, const LoadOptions& options) {
  constexpr int64_t kJobsPerBatch = 64;
  std::atomic<int64_t> bytes{0};
  for (int64_t first = 0; first < num_jobs; first += kJobsPerBatch) {
    parallel_for_throwing(pool, std::min(kJobsPerBatch, num_jobs - first), [&](int64_t i, int) { bytes += body(first + i); });
    if (options.progress) options.progress(bytes.exchange(0));
  }
}

/// The prefix of the text decoder's tensors: "model.language_model." in a vision-language checkpoint, "model." in a text one.
std::string text_prefix(const TensorReader& reader) {
  for (const char* prefix : {"model.language_model.", "model."}) {
    if (reader.has(std::string(prefix) + "embed_tokens.weight")) return prefix;
  }
  throw_invalid("checkpoint: tensor model.language_model.embed_tokens.weight (or model.embed_tokens.weight) is missing");
}

std::string experts_prefix(const std::string& prefix, int64_t layer) {
  return prefix + "layers." + std::to_string(layer) + ".mlp.experts.";
}

/// The matrices of every expert of a layer, whichever way they are stored.
struct StoredExperts {
  std::vector<StoredMatrix> gate_up;  // [num_experts] of [2 * intermediate_dim, hidden_dim]
  std::vector<StoredMatrix> down;     // [num_experts] of [hidden_dim, intermediate_dim]
};

StoredExperts find_experts(TensorReader& reader, const ModelConfig& config, const Quantization& quantization,
                           const std::string& prefix, int64_t layer) {
  const int64_t num_experts = config.moe.num_experts, hidden = config.hidden_dim, inter = config.moe.intermediate_dim;
  const std::string experts = experts_prefix(prefix, layer);
  const bool in_panels = quantization.experts && reader.in_panels();
  const bool in_one = !in_panels && (reader.has(experts + "gate_up_proj") || !reader.has(experts + "0.gate_proj.weight"));
  StoredRows all_gate_up, all_down;
  if (in_one) {
    all_gate_up = reader.find(experts + "gate_up_proj", {num_experts, 2 * inter, hidden});
    all_down = reader.find(experts + "down_proj", {num_experts, hidden, inter});
  }
  StoredExperts found;
  for (int64_t e = 0; e < num_experts; ++e) {
    const std::string name = experts + std::to_string(e) + ".", gate_up = name + "gate_up_proj", down = name + "down_proj";
    if (in_one) {
      found.gate_up.push_back(reader.find_matrix(gate_up, {{all_gate_up.tensor, e * 2 * inter, 2 * inter, hidden}},
                                                 quantization.experts, WeightUse::kGated));
      found.down.push_back(reader.find_matrix(down, {{all_down.tensor, e * hidden, hidden, inter}}, quantization.experts));
    } else {
      found.gate_up.push_back(reader.find_matrix(gate_up, 2 * inter, hidden,
                                                 {name + "gate_proj.weight", name + "up_proj.weight"}, quantization.experts,
                                                 WeightUse::kGated));
      found.down.push_back(reader.find_matrix(down, hidden, inter, {name + "down_proj.weight"}, quantization.experts));
    }
  }
  return found;
}

/// Collects the small vectors at once and the matrices as jobs.
class TrunkLoader {
 public:
  TrunkLoader(TensorReader& reader, const ModelConfig& config, const Quantization& quantization, std::string prefix,
              std::vector<PackJob>& jobs)
      : reader_(reader), config_(config), quantization_(quantization), prefix_(std::move(prefix)), jobs_(jobs) {}

  /// All but the values of the embedding, whose place is returned.
  StoredRows load(TrunkWeights& trunk) {
    const StoredRows embedding = reader_.find(prefix_ + "embed_tokens.weight", {config_.vocab_size, config_.hidden_dim});
    trunk.norm = vector(prefix_ + "norm.weight", {config_.hidden_dim});
    load_head(trunk, embedding);
    trunk.layers.resize(config_.layers.size());
    for (std::size_t i = 0; i < config_.layers.size(); ++i)
      load_layer(trunk.layers[i], config_.layers[i], prefix_ + "layers." + std::to_string(i) + ".");
    return embedding;
  }

 private:
  void load_head(TrunkWeights& trunk, const StoredRows& embedding) {
    const std::optional<WeightType>& quantized = quantization_.lm_head;
    if (reader_.has("lm_head.weight") || (quantized && reader_.in_panels())) {
      matrix(trunk.lm_head, "lm_head", config_.vocab_size, config_.hidden_dim, quantized);
    } else if (config_.tie_word_embeddings) {
      jobs_.push_back({reader_.find_matrix("lm_head", {embedding}, quantized), &trunk.lm_head});
    } else {
      throw_invalid("checkpoint: tensor lm_head.weight is missing and config.json does not tie the embeddings");
    }
  }
  void load_layer(LayerWeights& layer, LayerKind kind, const std::string& name) {
    layer.input_norm = vector(name + "input_layernorm.weight", {config_.hidden_dim});
    layer.post_attention_norm = vector(name + "post_attention_layernorm.weight", {config_.hidden_dim});
    if (kind == LayerKind::kLinearAttention) {
      load_deltanet(layer.mixer.emplace<DeltaNetWeights>(), name + "linear_attn.");
    } else {
      load_attention(layer.mixer.emplace<AttentionWeights>(), name + "self_attn.");
    }
    load_moe(layer.moe, name + "mlp.");
  }

  void load_deltanet(DeltaNetWeights& w, const std::string& name) {
    const DeltaNetConfig& d = config_.deltanet;
    matrix(w.in_proj_qkv, name + "in_proj_qkv", d.conv_channels(), config_.hidden_dim, quantization_.mixers);
    matrix(w.in_proj_z, name + "in_proj_z", d.value_dim(), config_.hidden_dim, quantization_.mixers);
    matrix(w.in_proj_b, name + "in_proj_b", d.num_v_heads, config_.hidden_dim);
    matrix(w.in_proj_a, name + "in_proj_a", d.num_v_heads, config_.hidden_dim);
    w.conv1d = vector(name + "conv1d.weight", {d.conv_channels(), 1, d.conv_kernel});
    w.a_log = vector(name + "A_log", {d.num_v_heads});
    w.dt_bias = vector(name + "dt_bias", {d.num_v_heads});
    const StoredRows norm = reader_.find(name + "norm.weight", {d.v_dim});
    w.norm = reader_.read_vector(norm);
    w.norm_dtype = TensorReader::stored_dtype(norm);
    matrix(w.out_proj, name + "out_proj", config_.hidden_dim, d.value_dim(), quantization_.mixers);
  }

  void load_attention(AttentionWeights& w, const std::string& name) {
    const AttentionConfig& a = config_.attention;
    matrix(w.q_proj, name + "q_proj", 2 * a.num_heads * a.head_dim, config_.hidden_dim, quantization_.mixers);
    matrix(w.k_proj, name + "k_proj", a.num_kv_heads * a.head_dim, config_.hidden_dim, quantization_.mixers);
    matrix(w.v_proj, name + "v_proj", a.num_kv_heads * a.head_dim, config_.hidden_dim, quantization_.mixers);
    w.q_norm = vector(name + "q_norm.weight", {a.head_dim});
    w.k_norm = vector(name + "k_norm.weight", {a.head_dim});
    matrix(w.o_proj, name + "o_proj", config_.hidden_dim, a.num_heads * a.head_dim, quantization_.mixers);
  }

  void load_moe(MoeWeights& w, const std::string& name) {
    const int64_t shared = config_.moe.shared_intermediate_dim;
    matrix(w.router, name + "gate", config_.moe.num_experts, config_.hidden_dim);
    jobs_.push_back({reader_.find_matrix(name + "shared_expert.gate_up_proj", 2 * shared, config_.hidden_dim,
                                         {name + "shared_expert.gate_proj.weight", name + "shared_expert.up_proj.weight"},
                                         quantization_.shared, WeightUse::kGated),
                     &w.shared_gate_up});
    matrix(w.shared_down, name + "shared_expert.down_proj", config_.hidden_dim, shared, quantization_.shared);
    matrix(w.shared_expert_gate, name + "shared_expert_gate", 1, config_.hidden_dim);
  }

  std::vector<float> vector(const std::string& name, const std::vector<int64_t>& shape) {
    return reader_.read_vector(reader_.find(name, shape));
  }

  /// Queues the matrix `name` [rows, cols], stored as name.weight or in panels.
  void matrix(PackedPtr& target, const std::string& name, int64_t rows, int64_t cols,
              const std::optional<WeightType>& quantized = std::nullopt) {
    jobs_.push_back({reader_.find_matrix(name, rows, cols, {name + ".weight"}, quantized), &target});
  }

  TensorReader& reader_;
  const ModelConfig& config_;
  const Quantization& quantization_;
  std::string prefix_;
  std::vector<PackJob>& jobs_;
};

/// A tensor that nothing reads means that config and weights disagree: say so rather than run another model.
void refuse_unused(const Checkpoint& checkpoint, const TensorReader& reader) {
  for (const std::string_view name : checkpoint.names()) {
    const bool other_part =
        name.starts_with("mtp.") || name.starts_with("model.visual.") || name.ends_with("rotary_emb.inv_freq");
    if (other_part || reader.is_used(name)) continue;
    throw_invalid("checkpoint: tensor " + std::string(name) + " does not belong to the model that config.json describes");
  }
}

}  // namespace

TrunkWeights load_trunk(const Checkpoint& checkpoint, const ModelConfig& config, MatmulBackend& matmul, ThreadPool& pool,
                        const LoadOptions& options) {
  TensorReader reader(checkpoint, options.dtype, options.check_finite, options.weights.in_panels);
  const Quantization& quantization = options.weights.quantization;
  const std::string prefix = text_prefix(reader);
  TrunkWeights trunk;
  trunk.quantization = quantization;
  std::vector<PackJob> jobs;
  const StoredRows embedding = TrunkLoader(reader, config, quantization, prefix, jobs).load(trunk);
  trunk.embed_tokens = reader.view_or_copy(embedding, trunk.owned_embedding);
  for (int64_t layer = 0; layer < config.num_layers(); ++layer) find_experts(reader, config, quantization, prefix, layer);
  refuse_unused(checkpoint, reader);
  int64_t bytes = 0;
  for (const PackJob& job : jobs) bytes += job.matrix.packed_bytes(options.dtype);
  require_memory(bytes, "the part of the model outside the experts");
  const auto is_small = [](const PackJob& job) { return job.matrix.n * job.matrix.k < kLargeMatrix; };
  const auto large = std::partition(jobs.begin(), jobs.end(), is_small);
  const auto pack = [&](const PackJob& job, ThreadPool* shared_pool) {
    *job.target = reader.pack(matmul, job.matrix, shared_pool);
    return job.matrix.stored_bytes();
  };
  run_jobs(
      pool, large - jobs.begin(), [&](int64_t i) { return pack(jobs[static_cast<std::size_t>(i)], nullptr); }, options);
  for (auto job = large; job != jobs.end(); ++job) {
    const int64_t packed = pack(*job, &pool);
    if (options.progress) options.progress(packed);
  }
  return trunk;
}

ExpertBank load_experts(const Checkpoint& checkpoint, const ModelConfig& config, const ExpertMap& map, int32_t rank_idx,
                        MatmulBackend& matmul, ThreadPool& pool, const LoadOptions& options) {
  TensorReader reader(checkpoint, options.dtype, options.check_finite, options.weights.in_panels);
  const Quantization& quantization = options.weights.quantization;
  const std::string prefix = text_prefix(reader);
  std::vector<StoredExperts> layers;
  for (int64_t layer = 0; layer < config.num_layers(); ++layer)
    layers.push_back(find_experts(reader, config, quantization, prefix, layer));

  const std::span<const PhysicalExpertId> local = map.experts_of(rank_idx);
  const auto num_local = static_cast<int64_t>(local.size());
  const StoredExperts& first = layers.front();  // all experts are of one shape
  const int64_t expert_bytes =
      first.gate_up.front().packed_bytes(options.dtype) + first.down.front().packed_bytes(options.dtype);
  require_memory(
      config.num_layers() * num_local * expert_bytes,
      "this rank's " + std::to_string(num_local) + " of " + std::to_string(config.moe.num_experts) + " experts per layer");
  ExpertBank bank(config.num_layers(), num_local, {config.hidden_dim, config.moe.intermediate_dim},
                  quantization.experts.value_or(plain_weights(options.dtype)));
  const auto pack = [&](int64_t i) {
    const int64_t layer = i / num_local, expert = i % num_local;
    const auto logical = static_cast<std::size_t>(map.logical_of(local[static_cast<std::size_t>(expert)]).value);
    const StoredMatrix& gate_up = layers[static_cast<std::size_t>(layer)].gate_up[logical];
    const StoredMatrix& down = layers[static_cast<std::size_t>(layer)].down[logical];
    bank.set(layer, expert, reader.pack(matmul, gate_up), reader.pack(matmul, down));
    return gate_up.stored_bytes() + down.stored_bytes();
  };
  run_jobs(pool, config.num_layers() * num_local, pack, options);
  return bank;
}

std::vector<StoredMatrix> find_quantized(const Checkpoint& checkpoint, const ModelConfig& config,
                                         const Quantization& quantization, TensorReader& reader) {
  const std::string prefix = text_prefix(reader);
  TrunkWeights trunk;
  std::vector<PackJob> jobs;
  TrunkLoader(reader, config, quantization, prefix, jobs).load(trunk);
  std::vector<StoredMatrix> found;
  for (PackJob& job : jobs) {
    if (job.matrix.quantized) found.push_back(std::move(job.matrix));
  }
  for (int64_t layer = 0; layer < config.num_layers(); ++layer) {
    StoredExperts experts = find_experts(reader, config, quantization, prefix, layer);
    if (!quantization.experts) continue;
    for (std::size_t e = 0; e < experts.down.size(); ++e) {
      found.push_back(std::move(experts.gate_up[e]));
      found.push_back(std::move(experts.down[e]));
    }
  }
  refuse_unused(checkpoint, reader);
  for (const StoredMatrix& matrix : found) {
    try {
      check_quantizable(matrix.k, *matrix.quantized);
    } catch (const Error& error) {
      const TensorInfo& tensor = *matrix.pieces.front().tensor;
      throw_invalid(std::string(tensor.file) + ": tensor " + tensor.name + ": " + error.what());
    }
  }
  return found;
}

FindMatrices quantized_matrices(const std::filesystem::path& dir, const Quantization& quantization) {
  return [dir, quantization](const Checkpoint& checkpoint, TensorReader& reader) {
    return find_quantized(checkpoint, load_config(dir), quantization, reader);
  };
}

}  // namespace ferry
