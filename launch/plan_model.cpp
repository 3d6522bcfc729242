#include "launch/plan_model.h"

#include <algorithm>
#include <array>
#include <string>

#include "kernels/argmax_screen.h"
#include "launch/work_count.h"
#include "runtime/base/error.h"
#include "runtime/model/cache_shapes.h"
#include "runtime/model/footprint.h"
#include "runtime/model/operators.h"

namespace ferry {
namespace {

constexpr std::array<int64_t, 7> kRoofDecodeRows{1, 2, 4, 8, 16, 32, 64};
constexpr std::array<int64_t, 5> kRoofPrefillRows{64, 128, 512, 1024, 2048};
constexpr std::array<int64_t, 8> kRoofExpertRows{1, 2, 4, 8, 16, 32, 64, 128};
constexpr int64_t kRoofPast = 1024;    // tokens by which the cost of one is told
constexpr int64_t kRoofChunk = 512;    // rows that look back on them in a prompt
constexpr int64_t kLongPrompt = 2048;  // tokens of a piece

/// Of a layer and of what it is made of, so that another number of such layers has the same costs.
std::string shape_text(const ModelConfig& c, const PlanRun& run) {
  std::string text = c.class_name + " " + std::to_string(c.hidden_dim) + " vocab " + std::to_string(c.vocab_size) +
                     " experts " + std::to_string(c.moe.num_experts) + "x" + std::to_string(c.moe.intermediate_dim) + " top " +
                     std::to_string(c.moe.top_k) + " shared " + std::to_string(c.moe.shared_intermediate_dim) + " dense " +
                     std::to_string(c.dense.intermediate_dim) + " heads " + std::to_string(c.attention.num_heads) + "/" +
                     std::to_string(c.attention.num_kv_heads) + "x" + std::to_string(c.attention.head_dim) + " delta " +
                     std::to_string(c.gated_delta.num_v_heads) + "x" + std::to_string(c.gated_delta.v_dim) + " conv " +
                     std::to_string(c.short_conv.channels) + " " + dtype_name(run.dtype) + " " +
                     quantization_name(run.quantization);
  // Which share of the layers has which mixer.
  for (const Mixer mixer : kMixers) {
    if (c.num_layers_of(mixer) == 0) continue;
    text += std::string(" ") + mixer_name(mixer) + " " + std::to_string(100 * c.num_layers_of(mixer) / c.num_layers()) + "%";
  }
  if (run.kv_dtype != run.dtype) text += std::string(" keys and values ") + kv_dtype_name(run.kv_dtype);
  return text + (run.screens_lm_head ? " lm_head screened" : "");
}

/// The copy that lm_head is screened with; 0 without. Throws Error{kInvalidArgument} if that is not offered.
int64_t screen_bytes(const ModelConfig& c, const PlanRun& run) {
  if (!run.screens_lm_head) return 0;
  if (run.quantization.lm_head || run.dtype != DType::kBF16)
    throw_invalid("--lm-head-screen: lm_head is not bf16; allowed: where it is");
  return argmax_screen_bytes(c.vocab_size, c.hidden_dim);
}

}  // namespace

PlanModel plan_model(const ModelConfig& c, const PlanRun& run) {
  const DType dtype = run.dtype;
  const RankFootprint apart = rank_footprint(c, run.quantization, dtype, 1);
  const int64_t layers = c.is_dense() ? c.num_layers() : c.num_layers_of(Ffn::kMixtureOfExperts);
  const bool is_codes = takes_codes(run.quantization.experts);
  const DType row = is_codes ? DType::kI8 : dtype;
  return {.shape = shape_text(c, run),
          .num_layers = c.num_layers(),
          .num_expert_layers = layers,
          .num_experts = c.moe.num_experts,
          .top_k = c.moe.top_k,
          .coordinator_bytes = apart.coordinator_bytes + static_cast<double>(screen_bytes(c, run)),
          .expert_bytes = apart.worker_bytes / static_cast<double>(layers * c.moe.num_experts),
          .bytes_per_token = static_cast<double>(KvCache::bytes_per_block(kv_cache_shape(c, run.kv_dtype, 1))),
          .bytes_per_sequence = static_cast<double>(RecurrentState::bytes_per_slot(recurrent_state_shape(c, dtype))),
          .row_out_bytes = static_cast<double>(row_cols(row, c.hidden_dim) * dtype_bytes(row)) + (is_codes ? sizeof(float) : 0),
          .row_in_bytes = static_cast<double>(c.hidden_dim * dtype_bytes(dtype))};
}

void cost_by_roofs(PlanHost& host, const ModelConfig& config, const PlanRun& run, const PlanModel& model) {
  const Quantization counted = run.screens_lm_head ? with_screened_head(run.quantization) : run.quantization;
  const WorkCount work(describe_operators(config, counted, run.dtype, run.kv_dtype), WorkCount::Experts::kOnWorkers);
  const Roofs roofs{.read_bytes_per_s = host.read_bytes_per_s * kPlanReadShare,
                    .flops_per_s = host.flops_per_s * kPlanMultiplyShare,
                    .code_flops_per_s = host.code_flops_per_s * kPlanMultiplyShare};
  const auto seconds = [&](const Work& w) {
    return std::max(w.bytes / roofs.read_bytes_per_s, w.flops / roofs.flops_per_s + w.code_flops / roofs.code_flops_per_s);
  };
  const auto key_seconds = [&](const Work& far, const Work& near, int64_t rows) {
    return seconds({.bytes = far.bytes - near.bytes,
                    .flops = far.flops - near.flops,
                    .code_flops = far.code_flops - near.code_flops}) /
           static_cast<double>(rows * kRoofPast);
  };
  RankCosts costs;
  for (const int64_t rows : kRoofDecodeRows)
    costs.own_decode.points.push_back({static_cast<double>(rows), seconds(work.decode_step(rows, 0, 0))});
  for (const int64_t rows : kRoofPrefillRows)
    costs.own_prefill.points.push_back({static_cast<double>(rows), seconds(work.prompt(0, rows, kLongPrompt, 0))});
  for (const int64_t rows : {kRoofDecodeRows.front(), kRoofDecodeRows.back()}) {
    const double of_row = key_seconds(work.decode_step(rows, kRoofPast, 0), work.decode_step(rows, 0, 0), rows);
    costs.keys_decode.points.push_back({static_cast<double>(rows), of_row * static_cast<double>(rows)});
  }
  costs.key_prefill =
      key_seconds(work.prompt(kRoofPast, kRoofChunk, kRoofChunk, 0), work.prompt(0, kRoofChunk, kRoofChunk, 0), kRoofChunk);
  const double expert_flops = 6.0 * static_cast<double>(config.hidden_dim * config.moe.intermediate_dim);
  const double per_row = expert_flops / (takes_codes(run.quantization.experts) ? roofs.code_flops_per_s : roofs.flops_per_s);
  const double fixed = model.expert_bytes / roofs.read_bytes_per_s;
  for (const int64_t rows : kRoofExpertRows)
    costs.expert.points.push_back({static_cast<double>(rows), fixed + per_row * static_cast<double>(rows)});
  host.alone = costs;
}

}  // namespace ferry
