#include "tests/support/vulkan_table.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/vulkan/backend.h"
#include "kernels/vulkan/op_table.h"
#include "kernels/vulkan/vulkan_stream.h"
#include "tests/support/device_regions.h"

namespace ferry::test {
namespace {

/// Visits what an op's arguments point to: first to name it to `regions`, then to point to the device instead.
class Visitor {
 public:
  explicit Visitor(DeviceRegions& regions) : regions_(regions) {}

  void point_to_device() { is_taken_ = true; }

  template <bool kConst>
  void operator()(BasicMatrixView<kConst>& view) {
    if (view.data == nullptr) return;
    const int64_t elements = view.rows > 0 ? (view.rows - 1) * view.row_stride + view.cols : 0;
    view.data = visit(view.data, elements * dtype_bytes(view.dtype));
    if (is_taken_) view.space = Space::kDevice;
  }
  template <class T>
  void operator()(Address<T>& first, int64_t count) {
    if (!first) return;
    T* at = visit(first.raw(), count * static_cast<int64_t>(sizeof(T)));
    if (is_taken_) first = {at, Space::kDevice};
  }
  /// Pointers in a span: each to `bytes(i)`. The span then shows the copy.
  template <class T, class Bytes>
  void operator()(std::span<T* const>& pointers, std::vector<T*>& copy, const Bytes& bytes) {
    copy.assign(pointers.begin(), pointers.end());
    for (std::size_t i = 0; i < copy.size(); ++i) copy[i] = visit(copy[i], bytes(i));
    if (is_taken_) pointers = copy;
  }

 private:
  template <class T>
  T* visit(T* host, int64_t bytes) {
    if (is_taken_) return reinterpret_cast<T*>(regions_.on_device(reinterpret_cast<const std::byte*>(host)));
    regions_.add(reinterpret_cast<const std::byte*>(host), static_cast<std::size_t>(bytes));
    return host;
  }

  DeviceRegions& regions_;
  bool is_taken_ = false;
};

/// What visit() keeps for the arguments while the op is handed in.
struct Kept {
  std::vector<std::byte*> states;
  std::vector<float*> float_states;
  std::vector<const std::byte*> rows;
  std::vector<HeldDeltaRows> held;
  ExpertSumArgs experts;
};

void visit(Visitor& v, Kept&, EmbedArgs& a) { v(a.table), v(a.out); }
void visit(Visitor& v, Kept&, RmsNormArgs& a) { v(a.x), v(a.weight, a.x.cols), v(a.out); }
void visit(Visitor& v, Kept&, AddArgs& a) { v(a.a), v(a.b), v(a.out); }
void visit(Visitor& v, Kept&, MultiplyArgs& a) { v(a.a), v(a.b), v(a.out); }
void visit(Visitor& v, Kept&, GatedRmsNormArgs& a) { v(a.x), v(a.gate), v(a.weight, a.x.cols), v(a.out); }
void visit(Visitor& v, Kept&, RopeArgs& a) {
  const int64_t angles = a.x.rows * a.rotary_dim / 2;
  v(a.x), v(a.cos, angles), v(a.sin, angles);
}
void visit(Visitor& v, Kept&, SigmoidGateArgs& a) { v(a.x), v(a.gate), v(a.out); }
void visit(Visitor& v, Kept&, DeltaGatesArgs& a) {
  const int64_t heads = a.a.cols, values = a.a.rows * heads;
  v(a.a), v(a.b), v(a.a_log, heads), v(a.dt_bias, heads), v(a.decay, values), v(a.beta, values);
}
void visit(Visitor& v, Kept&, RouterTopkArgs& a) {
  const int64_t chosen = a.logits.rows * a.top_k;
  v(a.logits), v(a.bias, a.logits.cols), v(a.topk_idx, chosen), v(a.topk_weights, chosen);
}
void visit(Visitor& v, Kept&, ArgmaxArgs& a) { v(a.x), v(a.ids, a.x.rows); }
void visit(Visitor& v, Kept&, SwigluArgs& a) { v(a.gate_up), v(a.out); }
void visit(Visitor& v, Kept&, GatherRowsArgs& a) { v(a.x), v(a.out), v(a.scales, a.x.rows), v(a.out_scales, a.out.rows); }
void visit(Visitor& v, Kept&, ExpertRowsArgs& a) {
  const int64_t slots = a.num_tokens * a.top_k;
  v(a.topk_idx, slots), v(a.row_token, slots), v(a.slot_row, slots), v(a.row_runs, slots);
  v(a.counts, a.num_experts), v(a.row_totals, a.num_experts);
}
void visit(Visitor& v, Kept& kept, CombineArgs& a) {
  v(a.rows), v(a.slot_row, a.out.rows * a.num_slots);
  v(a.slot_weights, a.out.rows * a.num_slots), v(a.out);
  v(a.slot_rows, kept.rows, [&](std::size_t) { return a.out.cols * dtype_bytes(a.out.dtype); });
}
void visit(Visitor& v, Kept&, SharedExpertMergeArgs& a) { v(a.routed), v(a.shared), v(a.gate), v(a.out); }
void visit(Visitor& v, Kept&, QuantizeRowsArgs& a) { v(a.x), v(a.codes), v(a.scales, a.x.rows); }
void visit(Visitor& v, Kept&, LayerNormArgs& a) { v(a.x), v(a.weight, a.x.cols), v(a.bias, a.x.cols), v(a.out); }
void visit(Visitor& v, Kept&, AddBiasArgs& a) { v(a.x), v(a.bias, a.x.cols), v(a.residual), v(a.out); }
void visit(Visitor& v, Kept&, VisionRopeArgs& a) {
  const int64_t angles = a.x.rows * a.head_dim / 2;
  v(a.x), v(a.cos, angles), v(a.sin, angles);
}
void visit(Visitor& v, Kept&, SegmentAttentionArgs& a) { v(a.q), v(a.k), v(a.v), v(a.out); }

/// Of a cache, up to the last block that a sequence has.
template <class Args>
void visit_cache(Visitor& v, Args& a) {
  int64_t num_blocks = 0;
  for (std::size_t s = 0; s < a.sequences.size(); ++s) {
    const int64_t tokens = a.sequences[s].num_past + a.sequences[s].num_tokens;
    for (int64_t b = 0; b * a.cache.block_tokens < tokens; ++b)
      num_blocks = std::max<int64_t>(num_blocks, a.block_tables[s][b] + 1);
  }
  const int64_t bytes =
      num_blocks * a.cache.num_kv_heads * a.cache.block_tokens * a.cache.head_dim * dtype_bytes(a.cache.dtype);
  v(a.cache.keys, bytes), v(a.cache.values, bytes);
}
void visit(Visitor& v, Kept&, KvAppendArgs& a) { v(a.k), v(a.v), visit_cache(v, a); }
void visit(Visitor& v, Kept&, AttentionArgs& a) { v(a.q), v(a.out), visit_cache(v, a); }

void visit(Visitor& v, Kept& kept, CausalConv1dArgs& a) {
  const int64_t channels = a.x.cols, row = channels * dtype_bytes(a.x.dtype);
  v(a.x), v(a.weight, channels * a.kernel), v(a.out);
  v(a.states, kept.states, [&](std::size_t) { return (a.kernel - 1) * row; });
  v(a.held, kept.rows, [&](std::size_t i) { return a.sequences[i].num_replayed * row; });
}

void visit(Visitor& v, Kept& kept, GatedDeltaRuleArgs& a) {
  const int64_t heads = a.num_v_heads, row = a.qkv.cols * dtype_bytes(a.qkv.dtype);
  v(a.qkv), v(a.decay, a.qkv.rows * heads), v(a.beta, a.qkv.rows * heads), v(a.out);
  v(a.states, kept.float_states, [&](std::size_t) { return heads * a.k_dim * a.v_dim * static_cast<int64_t>(sizeof(float)); });
  kept.held.assign(a.held.begin(), a.held.end());
  for (std::size_t i = 0; i < kept.held.size(); ++i) {
    const int64_t replayed = a.sequences[i].num_replayed;
    v(kept.held[i].qkv, replayed * row), v(kept.held[i].decay, replayed * heads), v(kept.held[i].beta, replayed * heads);
  }
  a.held = kept.held;
}

// What is made of several ops. Regions that they share are taken once.
void visit(Visitor& v, Kept& kept, ResidualNormArgs& a) {
  v(a.residual), v(a.added), visit(v, kept, a.norm);
  if (a.experts != nullptr) {
    kept.experts = *a.experts;
    visit(v, kept, kept.experts.combine);
    if (a.experts->merge.shared.data != nullptr) visit(v, kept, kept.experts.merge);
    a.experts = &kept.experts;
  }
  if (a.codes.codes.data != nullptr) visit(v, kept, a.codes);
}
void visit(Visitor& v, Kept& kept, ExpertChoiceArgs& a) { visit(v, kept, a.router), visit(v, kept, a.rows); }
void visit(Visitor& v, Kept& kept, GatedDeltaMixArgs& a) {
  visit(v, kept, a.conv), visit(v, kept, a.gates), visit(v, kept, a.rule), visit(v, kept, a.norm);
}

/// The device of all tests of a process.
struct TestDevice {
  explicit TestDevice(const vulkan::PhysicalDevice& physical)
      : pool(1), backend(physical, DType::kF32), stream(backend.backend(), pool) {
    stream.set_order(vulkan::VulkanStream::Order::kReversed);
  }
  ThreadPool pool;
  vulkan::VulkanBackend backend;
  vulkan::VulkanStream stream;
};

/// Null without a device. It lives as long as the process: drivers do not like to be left by static destructors.
TestDevice* test_device() {
  static TestDevice* const device = [] {
    for (const vulkan::PhysicalDevice& physical : vulkan::find_physical_devices()) {
      if (physical.info.refusal.empty()) return std::make_unique<TestDevice>(physical).release();
    }
    return static_cast<TestDevice*>(nullptr);
  }();
  return device;
}

template <auto kOp>
struct OnDevice;
template <class Args, Op<Args> OpTable::*kOp>
struct OnDevice<kOp> {
  static void run(Stream&, const Args& args) {
    vulkan::VulkanStream& stream = test_device()->stream;
    DeviceRegions regions;
    Visitor visitor(regions);
    Kept kept;
    Args moved = args;
    visit(visitor, kept, moved);
    regions.take(stream);
    visitor.point_to_device();
    moved = args;
    visit(visitor, kept, moved);
    (vulkan::kOpTable.*kOp)(stream, moved);
    regions.bring_back(stream);
  }
  /// Of the host's arguments, whose states are as aligned as those of the device.
  static bool takes(const Args& args) { return (vulkan::kOpTable.*kOp).takes(args); }
};
template <auto kOp>
constexpr auto on_device = &OnDevice<kOp>::run;
template <auto kOp>
constexpr auto takes = &OnDevice<kOp>::takes;

const OpTable kTable{
    .name = "vulkan",
    .embed = on_device<&OpTable::embed>,
    .rms_norm = on_device<&OpTable::rms_norm>,
    .add = on_device<&OpTable::add>,
    .multiply = on_device<&OpTable::multiply>,
    .gated_rms_norm = on_device<&OpTable::gated_rms_norm>,
    .rope = on_device<&OpTable::rope>,
    .kv_append = on_device<&OpTable::kv_append>,
    .attention = on_device<&OpTable::attention>,
    .sigmoid_gate = on_device<&OpTable::sigmoid_gate>,
    .causal_conv1d = on_device<&OpTable::causal_conv1d>,
    .delta_gates = on_device<&OpTable::delta_gates>,
    .gated_delta_rule = on_device<&OpTable::gated_delta_rule>,
    .gated_delta_mix = {on_device<&OpTable::gated_delta_mix>, takes<&OpTable::gated_delta_mix>},
    .router_topk = on_device<&OpTable::router_topk>,
    .argmax = on_device<&OpTable::argmax>,
    .swiglu = on_device<&OpTable::swiglu>,
    .gather_rows = on_device<&OpTable::gather_rows>,
    .expert_rows = on_device<&OpTable::expert_rows>,
    .choose_experts = {on_device<&OpTable::choose_experts>, takes<&OpTable::choose_experts>},
    .combine = on_device<&OpTable::combine>,
    .shared_expert_merge = on_device<&OpTable::shared_expert_merge>,
    .quantize_rows = on_device<&OpTable::quantize_rows>,
    .residual_norm = {on_device<&OpTable::residual_norm>, takes<&OpTable::residual_norm>},
    .layer_norm = on_device<&OpTable::layer_norm>,
    .add_bias = on_device<&OpTable::add_bias>,
    .vision_rope = on_device<&OpTable::vision_rope>,
    .segment_attention = on_device<&OpTable::segment_attention>,
};

}  // namespace

const OpTable* vulkan_table() { return test_device() != nullptr ? &kTable : nullptr; }

}  // namespace ferry::test
