#include "runtime/model/weights_loader.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/model/architectures/architecture.h"

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

std::string layer_prefix(const std::string& prefix, int64_t layer) { return prefix + "layers." + std::to_string(layer) + "."; }

/// Rows [first, first + count) of `stored`.
StoredRows rows_from(StoredRows stored, int64_t first, int64_t count) {
  stored.first_row += first;
  stored.rows = count;
  return stored;
}

/// The matrices of every expert of a layer, whichever way they are stored; none of a dense layer that is not sliced.
struct StoredExperts {
  std::vector<StoredMatrix> gate_up;  // [num_experts] of [2 * intermediate_dim, hidden_dim]
  std::vector<StoredMatrix> down;     // [num_experts] of [hidden_dim, intermediate_dim]
};

/// Experts of one layer that are not stored like those of another cannot be in one bank.
void require_codes(const StoredExperts& experts, const std::optional<WeightType>& type, int64_t layer) {
  for (const std::vector<StoredMatrix>* matrices : {&experts.gate_up, &experts.down}) {
    for (const StoredMatrix& matrix : *matrices) {
      if (matrix.quantized == type) continue;
      throw_invalid("checkpoint: " + matrix.name + " of layer " + std::to_string(layer) + " is not stored as " +
                    weight_type_name(*type) + ", as other experts are; allowed: --quantize none, w8a8 or w4a8");
    }
  }
}

/// Columns [first, first + count) of `stored`.
StoredRows cols_from(StoredRows stored, int64_t first, int64_t count) {
  stored.first_col += first;
  stored.cols = count;
  return stored;
}

/// The slices of a dense network: the gate's and the up's rows and the down's columns [e * width, (e + 1) * width).
StoredExperts find_slices(TensorReader& reader, const ModelConfig& config, const std::optional<WeightType>& type,
                          const std::string& at) {
  StoredExperts found;
  const int64_t num_slices = config.moe.num_experts, width = config.moe.intermediate_dim, hidden = config.hidden_dim;
  const TensorNames::Ffn& names = config.architecture->names.dense;
  const bool in_panels = type && reader.in_panels();
  StoredRows gate, up, down;
  if (!in_panels) {
    gate = reader.find(at + names.gate + ".weight", {num_slices * width, hidden});
    up = reader.find(at + names.up + ".weight", {num_slices * width, hidden});
    down = reader.find(at + names.down + ".weight", {hidden, num_slices * width});
  }
  for (int64_t e = 0; e < num_slices; ++e) {
    const std::string name = at + "slices." + std::to_string(e) + ".", gate_up_name = name + "gate_up_proj",
                      down_name = name + "down_proj";
    if (in_panels) {
      found.gate_up.push_back(reader.find_matrix(gate_up_name, 2 * width, hidden, {}, type, WeightUse::kGated));
      found.down.push_back(reader.find_matrix(down_name, hidden, width, {}, type));
    } else {
      std::vector<StoredRows> gate_up{rows_from(gate, e * width, width), rows_from(up, e * width, width)};
      found.gate_up.push_back(reader.find_matrix(gate_up_name, std::move(gate_up), type, WeightUse::kGated));
      found.down.push_back(reader.find_matrix(down_name, {cols_from(down, e * width, width)}, type));
    }
  }
  return found;
}

/// The experts of a mixture, each with tensors of its own or all in one.
StoredExperts find_routed(TensorReader& reader, const ModelConfig& config, const Quantization& quantization,
                          const std::string& at) {
  StoredExperts found;
  const int64_t num_experts = config.moe.num_experts, hidden = config.hidden_dim, inter = config.moe.intermediate_dim;
  const TensorNames::Moe& names = config.architecture->names.moe;
  const std::string experts = at + names.experts;
  const bool in_panels = quantization.experts && reader.in_panels();
  const bool in_one =
      !in_panels && (reader.has(experts + names.packed_gate_up) || !reader.has(experts + "0." + names.expert.gate + ".weight"));
  StoredRows all_gate_up, all_down;
  if (in_one) {
    all_gate_up = reader.find(experts + names.packed_gate_up, {num_experts, 2 * inter, hidden});
    all_down = reader.find(experts + names.packed_down, {num_experts, hidden, inter});
  }
  for (int64_t e = 0; e < num_experts; ++e) {
    const std::string name = experts + std::to_string(e) + ".", gate_up = name + "gate_up_proj", down = name + "down_proj";
    if (in_one) {
      found.gate_up.push_back(reader.find_matrix(gate_up, {rows_from(all_gate_up, e * 2 * inter, 2 * inter)},
                                                 quantization.experts, WeightUse::kGated));
      found.down.push_back(reader.find_matrix(down, {rows_from(all_down, e * hidden, hidden)}, quantization.experts));
    } else {
      found.gate_up.push_back(reader.find_matrix(gate_up, 2 * inter, hidden,
                                                 {name + names.expert.gate + ".weight", name + names.expert.up + ".weight"},
                                                 quantization.experts, WeightUse::kGated));
      found.down.push_back(
          reader.find_matrix(down, hidden, inter, {name + names.expert.down + ".weight"}, quantization.experts));
    }
  }
  return found;
}

/// The experts of an MTP layer that the checkpoint left as they were while it made codes of the others': in w8a8 beside
/// experts whose rows are codes, plain beside others.
StoredExperts find_mtp_experts(TensorReader& reader, const ModelConfig& config, Quantization quantization) {
  const std::string at = config.architecture->names.mtp.layer;
  if (quantization.experts && quantization.experts->is_as_stored() && !config.moe.is_sliced && !reader.in_panels()) {
    const StoredExperts plain = find_routed(reader, config, {}, at);
    const bool is_stored_so = stored_codes_type(plain.down.front().pieces.front().format) == quantization.experts;
    if (!is_stored_so && quantization.experts->is_integer())
      quantization.experts = WeightType{WeightFormat::kInt8, 0};
    else if (!is_stored_so)
      quantization.experts = std::nullopt;
  }
  return config.moe.is_sliced ? find_slices(reader, config, quantization.experts, at)
                              : find_routed(reader, config, quantization, at);
}

StoredExperts find_experts(TensorReader& reader, const ModelConfig& config, const Quantization& quantization,
                           const std::string& prefix, int64_t layer) {
  const bool is_mtp = layer == config.num_layers();
  const LayerPlan plan = is_mtp ? config.mtp_plan() : config.layers[static_cast<std::size_t>(layer)];
  if (plan.ffn != Ffn::kMixtureOfExperts) return {};
  if (is_mtp) return find_mtp_experts(reader, config, quantization);
  const std::string at = layer_prefix(prefix, layer);
  StoredExperts found = config.moe.is_sliced ? find_slices(reader, config, quantization.experts, at)
                                             : find_routed(reader, config, quantization, at);
  if (quantization.experts && quantization.experts->is_as_stored()) require_codes(found, quantization.experts, layer);
  return found;
}

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

/// From where the host has it to a backend's memory, by all threads. Returns its bytes.
int64_t move_embedding(TrunkWeights& trunk, Memory& memory, ThreadPool& pool) {
  constexpr int64_t kPieceBytes = int64_t{4} << 20;
  const ConstMatrixView from = trunk.embed_tokens;
  FERRY_CHECK_EQ(from.row_stride, from.cols);
  Matrix to(memory, from.dtype, from.rows, from.cols);
  const MatrixView view = to.view();
  const int64_t bytes = from.rows * from.cols * dtype_bytes(from.dtype);
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
  if (backend.memory().space() == Space::kDevice) {
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

ExpertBank load_experts(const Checkpoint& checkpoint, const ModelConfig& config, const ExpertMap& map, int32_t rank_idx,
                        Matmul& matmul, ThreadPool& pool, const LoadOptions& options) {
  TensorReader reader(checkpoint, options.dtype, options.check_finite, options.weights.in_panels);
  reader.set_source_format(config.source);
  const Quantization& quantization = options.weights.quantization;
  const std::string prefix = text_prefix(reader);
  std::vector<StoredExperts> layers;
  for (int64_t layer = 0; layer < config.num_expert_layers(); ++layer)
    layers.push_back(find_experts(reader, config, quantization, prefix, layer));

  const std::span<const PhysicalExpertId> local = map.experts_of(rank_idx);
  const auto num_local = static_cast<int64_t>(local.size());
  std::vector<int64_t> sparse;  // layers that have experts
  int64_t bytes = 0;            // of this rank's
  for (int64_t layer = 0; layer < config.num_expert_layers(); ++layer) {
    const StoredExperts& stored = layers[static_cast<std::size_t>(layer)];
    if (stored.down.empty()) continue;
    sparse.push_back(layer);  // all experts of a layer are of one shape
    for (const std::vector<StoredMatrix>* matrices : {&stored.gate_up, &stored.down})
      bytes += num_local * matrices->front().packed_bytes(options.dtype, matmul.borrows_panels());
  }
  options.require_memory(bytes, "this rank's " + std::to_string(num_local) + " of " + std::to_string(config.moe.num_experts) +
                                    " experts per layer");
  ExpertBank bank(config.num_expert_layers(), num_local, {config.hidden_dim, config.moe.intermediate_dim},
                  quantization.experts.value_or(plain_weights(options.dtype)));
  const auto pack = [&](int64_t i) {
    const int64_t layer = sparse[static_cast<std::size_t>(i / num_local)], expert = i % num_local;
    const auto logical = static_cast<std::size_t>(map.logical_of(local[static_cast<std::size_t>(expert)]).value);
    const StoredMatrix& gate_up = layers[static_cast<std::size_t>(layer)].gate_up[logical];
    const StoredMatrix& down = layers[static_cast<std::size_t>(layer)].down[logical];
    bank.set(layer, expert, reader.pack(matmul, gate_up), reader.pack(matmul, down));
    return gate_up.stored_bytes() + down.stored_bytes();
  };
  run_jobs(pool, std::ssize(sparse) * num_local, pack, options);
  return bank;
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
