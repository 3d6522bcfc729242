#include "runtime/model/weights_loader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/model/architectures/architecture.h"
#include "runtime/model/expert_loader.h"
#include "runtime/model/loading.h"

namespace ferry {
namespace {

/// A matrix to pack and where the result goes.
struct PackJob {
  StoredMatrix matrix;
  PackedPtr* target;
};

// Elements from which on a matrix is packed by all threads together: by one alone, it would keep the others waiting.
constexpr int64_t kLargeMatrix = int64_t{32} << 20;

/// Rows [first, first + count) of each of `num_heads` equal pieces of a stored matrix, one after another.
std::vector<StoredRows> rows_of_heads(const StoredRows& merged, int64_t num_heads, int64_t first, int64_t count) {
  const int64_t per_head = merged.rows / num_heads;
  std::vector<StoredRows> pieces;
  for (int64_t h = 0; h < num_heads; ++h) pieces.push_back(rows_from(merged, h * per_head + first, count));
  return pieces;
}

/// Collects the small vectors at once and the matrices as jobs.
class TrunkLoader {
 public:
  TrunkLoader(TensorReader& reader, const ModelConfig& config, const Quantization& quantization, std::string prefix,
              Memory& memory, std::vector<PackJob>& jobs)
      : reader_(reader),
        config_(config),
        names_(config.architecture->names),
        quantization_(quantization),
        prefix_(std::move(prefix)),
        memory_(memory),
        jobs_(jobs) {}

  /// All but the values of the embedding, whose place is returned.
  StoredRows load(TrunkWeights& trunk) {
    const StoredRows embedding = reader_.find(prefix_ + "embed_tokens.weight", {config_.vocab_size, config_.hidden_dim});
    trunk.norm = norm(prefix_ + names_.final_norm, config_.hidden_dim);
    load_head(trunk, embedding);
    trunk.layers.resize(config_.layers.size());
    for (std::size_t i = 0; i < config_.layers.size(); ++i)
      load_layer(trunk.layers[i], config_.layers[i], layer_prefix(prefix_, static_cast<int64_t>(i)));
    if (config_.mtp) load_mtp(trunk.mtp.emplace());
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

  void load_mtp(MtpWeights& w) {
    const TensorNames::Mtp& n = names_.mtp;
    w.embedding_norm = norm(n.embedding_norm, config_.hidden_dim);
    w.hidden_norm = norm(n.hidden_norm, config_.hidden_dim);
    w.norm = norm(n.norm, config_.hidden_dim);
    matrix(w.fc, n.fc, config_.hidden_dim, 2 * config_.hidden_dim);
    load_layer(w.layer, config_.mtp_plan(), n.layer);
  }

  void load_layer(LayerWeights& layer, const LayerPlan& plan, const std::string& at) {
    layer.mixer_norm = norm(at + names_.mixer_norm, config_.hidden_dim);
    layer.ffn_norm = norm(at + names_.ffn_norm, config_.hidden_dim);
    switch (plan.mixer) {
      case Mixer::kGatedDelta: load_gated_delta(layer.mixer.emplace<GatedDeltaWeights>(), at); break;
      case Mixer::kAttention: load_attention(layer.mixer.emplace<AttentionWeights>(), at); break;
      case Mixer::kShortConv: load_short_conv(layer.mixer.emplace<ShortConvWeights>(), at); break;
    }
    if (plan.ffn == Ffn::kMixtureOfExperts) {
      load_moe(layer.ffn.emplace<MoeWeights>(), at);
    } else {
      DenseWeights& w = layer.ffn.emplace<DenseWeights>();
      gated_pair(w.gate_up, w.down, at, names_.dense, config_.dense.intermediate_dim);
    }
  }

  void load_gated_delta(GatedDeltaWeights& w, const std::string& at) {
    const GatedDeltaPlan& d = config_.gated_delta;
    const TensorNames::GatedDelta& n = names_.gated_delta;
    if (n.merged_qkvz != nullptr) {
      load_merged(w, at);
    } else {
      matrix(w.in_proj_qkv, at + n.in_proj_qkv, d.conv_channels(), config_.hidden_dim, quantization_.mixers);
      matrix(w.in_proj_z, at + n.in_proj_z, d.value_dim(), config_.hidden_dim, quantization_.mixers);
      matrix(w.in_proj_b, at + n.in_proj_b, d.num_v_heads, config_.hidden_dim);
      matrix(w.in_proj_a, at + n.in_proj_a, d.num_v_heads, config_.hidden_dim);
    }
    w.conv1d = vector(at + n.conv1d + ".weight", {d.conv_channels(), 1, d.conv_kernel});
    w.a_log = vector(at + n.a_log, {d.num_v_heads});
    w.dt_bias = vector(at + n.dt_bias, {d.num_v_heads});
    const StoredRows norm = reader_.find(at + n.norm + ".weight", {d.v_dim});
    w.norm = in_memory(reader_.read_vector(norm));
    w.norm_dtype = TensorReader::stored_dtype(norm).value_or(reader_.dtype());
    matrix(w.out_proj, at + n.out_proj, config_.hidden_dim, d.value_dim(), quantization_.mixers);
  }

  /// Projections whose rows lie by key head: of each q, k, v and z in one tensor, b and a in another.
  void load_merged(GatedDeltaWeights& w, const std::string& at) {
    const GatedDeltaPlan& d = config_.gated_delta;
    const TensorNames::GatedDelta& n = names_.gated_delta;
    const int64_t group = d.num_v_heads / d.num_k_heads, values = group * d.v_dim;  // of a key head
    const bool in_panels = quantization_.mixers && reader_.in_panels();
    if (in_panels) {
      matrix(w.in_proj_qkv, at + n.in_proj_qkv, d.conv_channels(), config_.hidden_dim, quantization_.mixers);
      matrix(w.in_proj_z, at + n.in_proj_z, d.value_dim(), config_.hidden_dim, quantization_.mixers);
    } else {
      const StoredRows qkvz =
          reader_.find(at + n.merged_qkvz + ".weight", {d.conv_channels() + d.value_dim(), config_.hidden_dim});
      std::vector<StoredRows> qkv = rows_of_heads(qkvz, d.num_k_heads, 0, d.k_dim);
      for (const StoredRows& k : rows_of_heads(qkvz, d.num_k_heads, d.k_dim, d.k_dim)) qkv.push_back(k);
      for (const StoredRows& v : rows_of_heads(qkvz, d.num_k_heads, 2 * d.k_dim, values)) qkv.push_back(v);
      rows(w.in_proj_qkv, at + n.in_proj_qkv, std::move(qkv), quantization_.mixers);
      rows(w.in_proj_z, at + n.in_proj_z, rows_of_heads(qkvz, d.num_k_heads, 2 * d.k_dim + values, values),
           quantization_.mixers);
    }
    const StoredRows ba = reader_.find(at + n.merged_ba + ".weight", {2 * d.num_v_heads, config_.hidden_dim});
    rows(w.in_proj_b, at + n.in_proj_b, rows_of_heads(ba, d.num_k_heads, 0, group));
    rows(w.in_proj_a, at + n.in_proj_a, rows_of_heads(ba, d.num_k_heads, group, group));
  }

  void load_attention(AttentionWeights& w, const std::string& at) {
    const AttentionPlan& a = config_.attention;
    const TensorNames::Attention& n = names_.attention;
    matrix(w.q_proj, at + n.q_proj, a.q_proj_dim(), config_.hidden_dim, quantization_.mixers);
    matrix(w.k_proj, at + n.k_proj, a.key_dim(), config_.hidden_dim, quantization_.mixers);
    matrix(w.v_proj, at + n.v_proj, a.key_dim(), config_.hidden_dim, quantization_.mixers);
    w.q_norm = norm(at + n.q_norm, a.head_dim);
    w.k_norm = norm(at + n.k_norm, a.head_dim);
    matrix(w.o_proj, at + n.o_proj, config_.hidden_dim, a.query_dim(), quantization_.mixers);
  }

  void load_short_conv(ShortConvWeights& w, const std::string& at) {
    const ShortConvPlan& c = config_.short_conv;
    const TensorNames::ShortConv& n = names_.short_conv;
    matrix(w.in_proj, at + n.in_proj, 3 * c.channels, config_.hidden_dim, quantization_.mixers);
    w.conv1d = vector(at + n.conv + ".weight", {c.channels, 1, c.conv_kernel});
    matrix(w.out_proj, at + n.out_proj, config_.hidden_dim, c.channels, quantization_.mixers);
  }

  void load_moe(MoeWeights& w, const std::string& at) {
    const MoePlan& m = config_.moe;
    const TensorNames::Moe& n = names_.moe;
    if (m.is_sliced) return;
    matrix(w.router, at + n.router, m.num_experts, config_.hidden_dim);
    if (m.router.has_bias) w.bias = vector(at + n.bias, {m.num_experts});
    if (m.shared_intermediate_dim == 0) return;
    gated_pair(w.shared_gate_up, w.shared_down, at, n.shared, m.shared_intermediate_dim);
    matrix(w.shared_expert_gate, at + n.shared_gate, 1, config_.hidden_dim);
  }

  /// A dense network that every token passes. Its stacked matrix is called like the gate's, with "gate_up_proj" at the end.
  void gated_pair(PackedPtr& gate_up, PackedPtr& down, const std::string& at, const TensorNames::Ffn& n, int64_t width) {
    const std::string gate = at + n.gate;
    const std::string stacked = gate.substr(0, gate.rfind('.') + 1) + "gate_up_proj";
    jobs_.push_back({reader_.find_matrix(stacked, 2 * width, config_.hidden_dim, {gate + ".weight", at + n.up + ".weight"},
                                         quantization_.shared, WeightUse::kGated),
                     &gate_up});
    matrix(down, at + n.down, config_.hidden_dim, width, quantization_.shared);
  }

  Array<float> vector(const std::string& name, const std::vector<int64_t>& shape) {
    return in_memory(reader_.read_vector(reader_.find(name, shape)));
  }

  /// As factors.
  Array<float> norm(const std::string& name, int64_t width) {
    std::vector<float> weight = reader_.read_vector(reader_.find(name + ".weight", {width}));
    if (config_.norm.is_offset) {
      for (float& w : weight) w = 1.0F + w;
    }
    return in_memory(weight);
  }

  Array<float> in_memory(const std::vector<float>& values) { return {memory_, std::span(values)}; }

  /// Queues the matrix `name` [rows, cols], stored as name.weight or in panels.
  void matrix(PackedPtr& target, const std::string& name, int64_t num_rows, int64_t cols,
              const std::optional<WeightType>& quantized = std::nullopt) {
    jobs_.push_back({reader_.find_matrix(name, num_rows, cols, {name + ".weight"}, quantized), &target});
  }

  /// Queues the matrix `name` that stored rows make together.
  void rows(PackedPtr& target, const std::string& name, std::vector<StoredRows> pieces,
            const std::optional<WeightType>& quantized = std::nullopt) {
    jobs_.push_back({reader_.find_matrix(name, std::move(pieces), quantized), &target});
  }

  TensorReader& reader_;
  const ModelConfig& config_;
  const TensorNames& names_;
  const Quantization& quantization_;
  std::string prefix_;
  Memory& memory_;
  std::vector<PackJob>& jobs_;
};

/// A tensor that nothing reads means that config and weights disagree: say so rather than run another model.
void refuse_unused(const Checkpoint& checkpoint, const TensorReader& reader) {
  for (const std::string_view name : checkpoint.names()) {
    if (is_of_other_part(name) || reader.is_used(name)) continue;
    throw_invalid("checkpoint: tensor " + std::string(name) + " does not belong to the model that config.json describes");
  }
}

}  // namespace

bool is_of_other_part(std::string_view name) {
  return name.starts_with("mtp.") || name.starts_with("model.visual.") || name.ends_with("rotary_emb.inv_freq");
}

std::string lacks_mtp(const Checkpoint& checkpoint, const ModelConfig& config, const WeightPlan& weights) {
  const TensorNames& names = config.architecture->names;
  const std::string fc = std::string(names.mtp.fc) + ".weight", layer = names.mtp.layer;
  if (checkpoint.find(fc) == nullptr) return "the checkpoint has no MTP layer (no tensor " + fc + ")";
  const std::string_view first = layer, all = first.substr(0, first.find_last_of('.', first.size() - 2) + 1);
  for (const std::string_view name : checkpoint.names()) {
    if (name.starts_with(all) && !name.starts_with(first))
      return "the checkpoint has more than one MTP layer (tensor " + std::string(name) + ")";
  }
  if (!weights.in_panels) return "";
  const auto has_panels = [&](const std::string& matrix) { return checkpoint.find(panels_name(layer + matrix)) != nullptr; };
  const std::string first_expert = config.moe.is_sliced ? "slices.0." : std::string(names.moe.experts) + "0.";
  const bool is_whole = (!weights.quantization.mixers || has_panels(names.attention.q_proj)) &&
                        (!weights.quantization.experts || has_panels(first_expert + "down_proj"));
  return is_whole ? "" : "the folder was packed without panels of its MTP layer (an older Ferry, or native codes)";
}

int64_t embedding_bytes(const TrunkWeights& trunk) {
  const ConstMatrixView embedding = trunk.embed_tokens;
  return embedding.rows * embedding.cols * dtype_bytes(embedding.dtype);
}

/// From where the host has it to a backend's memory, by all threads. Returns its bytes.
int64_t move_embedding(TrunkWeights& trunk, Memory& memory, ThreadPool& pool) {
  constexpr int64_t kPieceBytes = int64_t{4} << 20;
  const ConstMatrixView from = trunk.embed_tokens;
  FERRY_CHECK_EQ(from.row_stride, from.cols);
  Matrix to(memory, from.dtype, from.rows, from.cols);
  const MatrixView view = to.view();
  const int64_t bytes = embedding_bytes(trunk);
  parallel_for_throwing(pool, (bytes + kPieceBytes - 1) / kPieceBytes, [&](int64_t piece, int) {
    const int64_t first = piece * kPieceBytes, count = std::min(kPieceBytes, bytes - first);
    memory.fill(Address<std::byte>(view.data, view.space) + first,
                {from.row_bytes(0) + first, static_cast<std::size_t>(count)});
  });
  trunk.owned_embedding = std::move(to);
  trunk.embed_tokens = view;
  return bytes;
}

TrunkWeights load_trunk(const Checkpoint& checkpoint, const ModelConfig& config, const Backend& backend, ThreadPool& pool,
                        const LoadOptions& options) {
  TensorReader reader(checkpoint, options.dtype, options.check_finite, options.weights.in_panels);
  reader.set_source_format(config.source);
  const Quantization& quantization = options.weights.quantization;
  const std::string prefix = text_prefix(reader);
  TrunkWeights trunk;
  trunk.quantization = quantization;
  std::vector<PackJob> jobs;
  const StoredRows embedding = TrunkLoader(reader, config, quantization, prefix, backend.memory(), jobs).load(trunk);
  trunk.embed_tokens = reader.view_or_copy(embedding, trunk.owned_embedding);
  const bool moves_embedding = backend.memory().space() == Space::kDevice;
  int64_t stored_bytes = moves_embedding ? embedding_bytes(trunk) : 0;
  for (const PackJob& job : jobs) stored_bytes += job.matrix.stored_bytes();
  if (options.expect) options.expect(stored_bytes);
  if (moves_embedding) {
    reader.check_checksums(embedding, &pool);
    const int64_t moved = move_embedding(trunk, backend.memory(), pool);
    if (options.progress) options.progress(moved);
  }
  for (int64_t layer = 0; layer < config.num_expert_layers(); ++layer)
    find_experts(reader, config, quantization, prefix, layer);
  refuse_unused(checkpoint, reader);
  int64_t bytes = 0;
  const bool borrows = backend.matmul().borrows_panels();
  for (const PackJob& job : jobs) bytes += job.matrix.packed_bytes(options.dtype, borrows);
  options.require_memory(bytes, "the part of the model outside the experts");
  const auto is_small = [](const PackJob& job) { return job.matrix.n * job.matrix.k < kLargeMatrix; };
  const auto large = std::partition(jobs.begin(), jobs.end(), is_small);
  const auto pack = [&](const PackJob& job, ThreadPool* shared_pool) {
    *job.target = reader.pack(backend.matmul(), job.matrix, shared_pool);
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

Quantization resolve_quantization(const Checkpoint& checkpoint, const ModelConfig& config, const Quantization& asked) {
  if (!asked.is_native) return asked;
  const std::optional<WeightType> type = stored_codes_type(config.source);
  TensorReader reader(checkpoint, config.dtype, /*check_finite=*/false);
  reader.set_source_format(config.source);
  const std::string prefix = text_prefix(reader);
  Quantization found;
  for (const auto part : {&Quantization::shared, &Quantization::mixers, &Quantization::lm_head}) {
    Quantization only;
    only.*part = type;
    TrunkWeights trunk;
    std::vector<PackJob> jobs;
    TrunkLoader(reader, config, only, prefix, host_memory(), jobs).load(trunk);
    if (std::ranges::any_of(jobs, [](const PackJob& job) { return job.matrix.quantized.has_value(); })) found.*part = type;
  }
  for (int64_t layer = 0; layer < config.num_layers() && !found.experts; ++layer) {
    const StoredExperts experts = find_experts(reader, config, {}, prefix, layer);
    if (!experts.down.empty() && stored_codes_type(experts.down.front().pieces.front().format) == type) found.experts = type;
  }
  if (!found.any())
    throw_invalid("--quantize is 'native', but the checkpoint holds no codes of 4 bits or e4m3; allowed: none, w8a8, w4a8");
  return found;
}

std::vector<StoredMatrix> find_quantized(const Checkpoint& checkpoint, const ModelConfig& config,
                                         const Quantization& quantization, TensorReader& reader) {
  reader.set_source_format(config.source);
  const std::string prefix = text_prefix(reader);
  TrunkWeights trunk;
  std::vector<PackJob> jobs;
  TrunkLoader(reader, config, quantization, prefix, host_memory(), jobs).load(trunk);
  std::vector<StoredMatrix> found;
  for (PackJob& job : jobs) {
    if (job.matrix.quantized) found.push_back(std::move(job.matrix));
  }
  for (int64_t layer = 0; layer < config.num_expert_layers(); ++layer) {
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
    ModelConfig config = load_config(dir);
    // An MTP layer may be stored otherwise than codes that are kept as they are; then it is copied.
    const bool keeps_codes = quantization.experts && quantization.experts->is_as_stored();
    config.mtp = !keeps_codes && lacks_mtp(checkpoint, config, {}).empty();
    return find_quantized(checkpoint, config, quantization, reader);
  };
}

}  // namespace ferry
