#include "runtime/model/vision/vision_weights.h"

#include <string>

#include "runtime/base/available_memory.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/tensor_reader.h"

namespace ferry {
namespace {

constexpr std::string_view kPrefix = "model.visual.";

/// Finds tensors, reads vectors at once and queues matrices.
class Loader {
 public:
  Loader(TensorReader& reader, const VisionPlan& plan, Memory& memory) : reader_(reader), plan_(plan), memory_(memory) {}

  /// A matrix to pack and where the result goes.
  struct Job {
    StoredMatrix matrix;
    PackedPtr* target;
  };

  std::vector<Job> load(VisionWeights& weights) {
    const int64_t hidden = plan_.hidden_dim;
    load_patch_embed(weights.patch_embed);
    weights.pos_embed = vector("pos_embed.weight", {plan_.position_side * plan_.position_side, hidden});
    weights.blocks.resize(static_cast<std::size_t>(plan_.depth));
    for (int64_t b = 0; b < plan_.depth; ++b) {
      VisionBlockWeights& block = weights.blocks[static_cast<std::size_t>(b)];
      const std::string at = "blocks." + std::to_string(b) + ".";
      norm(block.norm1, at + "norm1");
      linear(block.qkv, at + "attn.qkv", 3 * hidden, hidden);
      linear(block.proj, at + "attn.proj", hidden, hidden);
      norm(block.norm2, at + "norm2");
      linear(block.linear_fc1, at + "mlp.linear_fc1", plan_.intermediate_dim, hidden);
      linear(block.linear_fc2, at + "mlp.linear_fc2", hidden, plan_.intermediate_dim);
    }
    norm(weights.merger_norm, "merger.norm");
    linear(weights.merger_fc1, "merger.linear_fc1", plan_.merged_dim(), plan_.merged_dim());
    linear(weights.merger_fc2, "merger.linear_fc2", plan_.out_hidden_dim, plan_.merged_dim());
    return std::move(jobs_);
  }

 private:
  /// A convolution whose steps are as long as its kernel: each output channel's kernel is a row.
  void load_patch_embed(LinearWeights& to) {
    const std::string name = std::string(kPrefix) + "patch_embed.proj";
    StoredRows rows =
        reader_.find(name + ".weight", {plan_.hidden_dim, 3, plan_.temporal_patch_size, plan_.patch_size, plan_.patch_size});
    rows.rows = rows.matrix_rows = plan_.hidden_dim;
    rows.cols = rows.matrix_cols = plan_.patch_cols();
    jobs_.push_back({reader_.find_matrix(name, {rows}), &to.weight});
    to.bias = array("patch_embed.proj.bias", {plan_.hidden_dim});
  }

  void linear(LinearWeights& to, const std::string& name, int64_t out, int64_t in) {
    const std::string full = std::string(kPrefix) + name;
    jobs_.push_back({reader_.find_matrix(full, out, in, {full + ".weight"}), &to.weight});
    to.bias = array(name + ".bias", {out});
  }

  void norm(LayerNormWeights& to, const std::string& name) {
    to.weight = array(name + ".weight", {plan_.hidden_dim});
    to.bias = array(name + ".bias", {plan_.hidden_dim});
  }

  std::vector<float> vector(const std::string& name, const std::vector<int64_t>& shape) {
    return reader_.read_vector(reader_.find(std::string(kPrefix) + name, shape));
  }

  Array<float> array(const std::string& name, const std::vector<int64_t>& shape) {
    return {memory_, std::span<const float>(vector(name, shape))};
  }

  TensorReader& reader_;
  const VisionPlan& plan_;
  Memory& memory_;
  std::vector<Job> jobs_;
};

/// A tensor that nothing reads means that config and weights disagree.
void refuse_unused_of_tower(const Checkpoint& checkpoint, const TensorReader& reader) {
  for (const std::string_view name : checkpoint.names()) {
    if (!is_of_vision_tower(name) || reader.is_used(name)) continue;
    throw_invalid("checkpoint: tensor " + std::string(name) + " does not belong to the tower that config.json describes");
  }
}

}  // namespace

bool is_of_vision_tower(std::string_view name) { return name.starts_with(kPrefix); }

int64_t vision_bytes(const Checkpoint& checkpoint, DType dtype) {
  int64_t bytes = 0;
  for (const std::string_view name : checkpoint.names()) {
    if (!is_of_vision_tower(name)) continue;
    const std::vector<int64_t>& shape = checkpoint.find(name)->shape;
    int64_t elements = 1;
    for (const int64_t side : shape) elements *= side;
    const bool is_matrix = shape.size() > 1 && !name.ends_with("pos_embed.weight");
    bytes += elements * dtype_bytes(is_matrix ? dtype : DType::kF32);
  }
  return bytes;
}

VisionWeights load_vision(const Checkpoint& checkpoint, const VisionPlan& plan, const Backend& backend, ThreadPool& pool,
                          DType dtype, bool check_finite) {
  TensorReader reader(checkpoint, dtype, check_finite);
  VisionWeights weights;
  const std::vector<Loader::Job> jobs = Loader(reader, plan, backend.memory()).load(weights);
  refuse_unused_of_tower(checkpoint, reader);
  int64_t bytes = 0;
  for (const Loader::Job& job : jobs) bytes += job.matrix.packed_bytes(dtype, backend.matmul().borrows_panels());
  if (backend.memory().space() == Space::kHost) require_memory(bytes, "the vision tower");
  parallel_for_throwing(pool, std::ssize(jobs), [&](int64_t i, int) {
    const Loader::Job& job = jobs[static_cast<std::size_t>(i)];
    *job.target = reader.pack(backend.matmul(), job.matrix);
  });
  return weights;
}

}  // namespace ferry
