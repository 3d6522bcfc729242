#include "runtime/model/expert_loader.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/model/architectures/architecture.h"
#include "runtime/model/loading.h"

namespace ferry {
namespace {

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

}  // namespace

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

ExpertLoader::ExpertLoader(const Checkpoint& checkpoint, const ModelConfig& config, Matmul& matmul, LoadOptions options)
    : config_(config),
      matmul_(matmul),
      options_(std::move(options)),
      reader_(checkpoint, options_.dtype, options_.check_finite, options_.weights.in_panels) {
  reader_.set_source_format(config.source);
  const std::string prefix = text_prefix(reader_);
  for (int64_t layer = 0; layer < config.num_expert_layers(); ++layer)
    layers_.push_back(find_experts(reader_, config, options_.weights.quantization, prefix, layer));
}

WeightType ExpertLoader::weight_type() const {
  return options_.weights.quantization.experts.value_or(plain_weights(options_.dtype));
}

int64_t ExpertLoader::packed_bytes(int64_t layer) const {
  const StoredExperts& experts = stored(layer);
  if (experts.down.empty()) return 0;
  int64_t bytes = 0;  // all experts of a layer are of one shape
  for (const std::vector<StoredMatrix>* matrices : {&experts.gate_up, &experts.down})
    bytes += matrices->front().packed_bytes(options_.dtype, matmul_.borrows_panels());
  return bytes;
}

int64_t ExpertLoader::stored_bytes(int64_t layer, LogicalExpertId expert) const {
  const auto e = static_cast<std::size_t>(expert.value);
  return stored(layer).gate_up[e].stored_bytes() + stored(layer).down[e].stored_bytes();
}

int64_t ExpertLoader::stored_bytes(const RankExperts& experts) const {
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < num_layers(); ++layer) {
    if (!has_experts(layer)) continue;
    for (const LogicalExpertId expert : experts[static_cast<std::size_t>(layer)]) bytes += stored_bytes(layer, expert);
  }
  return bytes;
}

std::shared_ptr<const PackedExpert> ExpertLoader::load(int64_t layer, LogicalExpertId expert, MappedChecks checks) const {
  const auto e = static_cast<std::size_t>(expert.value);
  PackedExpert packed;
  packed.gate_up = reader_.pack(matmul_, stored(layer).gate_up[e], nullptr, checks);
  packed.down = reader_.pack(matmul_, stored(layer).down[e], nullptr, checks);
  return std::make_shared<const PackedExpert>(std::move(packed));
}

ExpertBank ExpertLoader::load_all(const RankExperts& experts, ThreadPool& pool) const {
  FERRY_CHECK_EQ(std::ssize(experts), num_layers());
  std::vector<int64_t> num_local;
  std::vector<std::pair<int64_t, int64_t>> jobs;  // layer and place in it
  int64_t bytes = 0, most = 0;
  for (int64_t layer = 0; layer < num_layers(); ++layer) {
    const auto count = std::ssize(experts[static_cast<std::size_t>(layer)]);
    num_local.push_back(count);
    if (!has_experts(layer)) continue;
    for (int64_t e = 0; e < count; ++e) jobs.emplace_back(layer, e);
    bytes += count * packed_bytes(layer);
    most = std::max<int64_t>(most, count);
  }
  options_.require_memory(
      bytes, "this rank's " + std::to_string(most) + " of " + std::to_string(config_.moe.num_experts) + " experts per layer");
  ExpertBank bank(num_local, dims(), weight_type());
  const auto pack = [&](int64_t i) {
    const auto [layer, place] = jobs[static_cast<std::size_t>(i)];
    const LogicalExpertId expert = experts[static_cast<std::size_t>(layer)][static_cast<std::size_t>(place)];
    bank.set(layer, place, load(layer, expert, MappedChecks::kAsFolder));
    return stored_bytes(layer, expert);
  };
  run_jobs(pool, std::ssize(jobs), pack, options_);
  return bank;
}

}  // namespace ferry
