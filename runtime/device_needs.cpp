#include "runtime/device_needs.h"

#include <optional>
#include <string>

#include "kernels/backend.h"
#include "moe/device_token_dispatcher.h"
#include "runtime/base/available_memory.h"
#include "runtime/host_logits.h"
#include "runtime/model/footprint.h"
#include "runtime/model/trunk.h"
#include "runtime/mtp_drafter.h"

namespace ferry {
namespace {

/// Has no bytes, but addresses, and counts what it is asked for.
class CountedMemory final : public Memory {
 public:
  Space space() const override { return Space::kDevice; }
  Storage allocate(std::size_t size) override {
    const uintptr_t address = kFirst + num_bytes_;
    num_bytes_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    return {reinterpret_cast<std::byte*>(address), size, Space::kDevice, nullptr};
  }
  void fill(Address<std::byte>, std::span<const std::byte>) override {}
  int64_t num_bytes() const { return static_cast<int64_t>(num_bytes_); }

 private:
  static constexpr std::size_t kFirst = 4096, kAlignment = 256;
  std::size_t num_bytes_ = 0;
};

/// Of that memory; runs nothing.
class CountedStream final : public Stream {
 public:
  using Stream::Stream;
  void copy(Address<const std::byte>, Address<std::byte>, std::size_t) override {}
  void clear(Address<std::byte>, std::size_t) override {}
};

/// What workers send back: of each of the dispatches in flight a row for every expert of a token.
int64_t reply_bytes(const ModelConfig& config, const StepShape& shape) {
  const int64_t rows = shape.limits.max_tokens * config.moe.top_k;
  return TokenDispatcher::kMaxInFlight * rows * config.hidden_dim * dtype_bytes(shape.dtype);
}

/// Experts without weights.
ExpertBank empty_bank(const ModelConfig& config, int64_t num_local_experts, const Quantization& quantization, DType dtype) {
  return {config.num_expert_layers(),
          num_local_experts,
          {config.hidden_dim, config.moe.intermediate_dim},
          quantization.experts.value_or(plain_weights(dtype))};
}

}  // namespace

int64_t device_weight_bytes(const ModelConfig& config, const Quantization& quantization, DType dtype, int64_t num_workers) {
  double bytes = rank_footprint(config, quantization, dtype, num_workers).coordinator_bytes;
  if (config.mtp) bytes += mtp_footprint(config, quantization, dtype, num_workers).coordinator_bytes;
  return static_cast<int64_t>(bytes) + embedding_parameters(config) * dtype_bytes(config.dtype);
}

int64_t step_row_bytes(const ModelConfig& config, const StepShape& shape) {
  CountedMemory memory;
  const Backend backend("counted", {}, nullptr, memory);
  ThreadPool pool(1);
  CountedStream stream(backend, pool);
  TrunkWeights weights;
  weights.quantization = shape.quantization;
  weights.layers.resize(config.layers.size());
  Trunk trunk(config, weights, stream, shape.dtype, shape.limits);
  const auto vocab = static_cast<int32_t>(config.vocab_size);
  const HostLogits logits(stream, {.dtype = shape.dtype,
                                   .max_rows = shape.limits.max_logit_rows,
                                   .vocab_size = vocab,
                                   .vocab_size_effective = vocab,
                                   .has_values = false});
  std::optional<MtpDrafter> drafter;
  if (config.mtp) {
    weights.mtp.emplace();
    drafter.emplace(config, weights, trunk, shape.dtype, vocab, shape.speculation);
  }
  if (shape.num_workers > 0) return memory.num_bytes() + reply_bytes(config, shape);
  const ExpertBank bank = empty_bank(config, config.moe.num_experts, shape.quantization, shape.dtype);
  const DeviceTokenDispatcher dispatcher(
      bank, stream, {.max_tokens = shape.limits.max_tokens, .top_k = config.moe.top_k, .dtype = shape.dtype});
  return memory.num_bytes();
}

OpLimits op_limits(const ModelConfig& config, const StepShape& shape) {
  const bool has_delta = config.num_layers_of(Mixer::kGatedDelta) > 0,
             has_attention = config.mtp || config.num_layers_of(Mixer::kAttention) > 0;
  const AttentionPlan attention = has_attention ? config.attention : AttentionPlan{};
  const GatedDeltaPlan delta = has_delta ? config.gated_delta : GatedDeltaPlan{};
  return {.dtype = shape.dtype,
          .max_tokens = shape.limits.max_tokens,
          .max_sequences = shape.limits.max_sequences,
          .max_keys = shape.max_keys,
          .num_heads = attention.num_heads,
          .head_dim = attention.head_dim,
          .num_k_heads = delta.num_k_heads,
          .num_v_heads = delta.num_v_heads,
          .k_dim = delta.k_dim,
          .v_dim = delta.v_dim,
          .chunk = shape.delta_chunk,
          .num_experts = shape.num_workers == 0 ? config.moe.num_experts : 0,
          .max_logit_rows = shape.limits.max_logit_rows,
          .vocab_size = config.vocab_size};
}

void require_device_memory(const ComputeDevice& device, const DeviceNeeds& needs) {
  std::string parts =
      size_that_holds(needs.weights) + " of weights (--quantize), " + size_that_holds(needs.caches) + " of caches (--memory)";
  if (needs.pictures > 0) parts += ", " + size_that_holds(needs.pictures) + " for pictures (--picture-tokens, --picture-cache)";
  device.require_memory(needs.total(), "this run, with " + parts + " and " + size_that_holds(needs.rows) +
                                           " for the rows of a step (--token-budget),");
}

WorkerNeeds worker_needs(const ModelConfig& config, const Quantization& quantization, int64_t num_local_experts,
                         const ReplyWriter::Options& replies) {
  // All experts of the only worker, of which this one has its share.
  double experts = rank_footprint(config, quantization, replies.dtype, 1).worker_bytes;
  if (config.mtp) experts += mtp_footprint(config, quantization, replies.dtype, 1).worker_bytes;
  const double share = static_cast<double>(num_local_experts) / static_cast<double>(config.moe.num_experts);
  CountedMemory memory;
  const Backend backend("counted", {}, nullptr, memory);
  ThreadPool pool(1);
  CountedStream stream(backend, pool);
  const ExpertBank bank = empty_bank(config, num_local_experts, quantization, replies.dtype);
  const ReplyWriter writer(bank, stream, replies);
  return {.weights = static_cast<int64_t>(experts * share), .rows = memory.num_bytes()};
}

void require_device_memory(const ComputeDevice& device, const WorkerNeeds& needs) {
  device.require_memory(needs.weights + needs.rows, "this worker, with " + size_that_holds(needs.weights) +
                                                        " of weights (--quantize) and " + size_that_holds(needs.rows) +
                                                        " for the rows of a step (--token-budget),");
}

}  // namespace ferry
