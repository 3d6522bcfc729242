#include <algorithm>
#include <vector>

#include "kernels/op_checks.h"
#include "kernels/vulkan/ops/packs.h"
#include "kernels/vulkan/ops/vulkan_ops.h"
#include "kernels/vulkan/shaders/push_delta.h"
#include "runtime/base/check.h"

namespace ferry::vulkan {
namespace {

/// Whether heads are those of the chunk form.
bool have_chunks(int64_t k_dim, int64_t v_dim) { return k_dim == kChunkDim && v_dim == kChunkDim; }

/// Sequences that one kind of kernel takes. The chunks are those of the chunk form.
struct DeltaClass {
  std::vector<DeltaSequence> sequences;
  std::vector<DeltaChunk> chunks;
};

/// A call cut into work.
class DeltaPlan {
 public:
  explicit DeltaPlan(const GatedDeltaRuleArgs& args) : args_(args) {
    for (std::size_t s = 0; s < args.sequences.size(); ++s) {
      const SequenceSpan& span = args.sequences[s];
      if (span.num_tokens == 0) continue;
      const bool in_chunks = span.form == DeltaForm::kChunk && fits_chunks(s);
      DeltaClass& kind = in_chunks ? chunked_ : recurrent_;
      kind.sequences.push_back(describe(s, std::ssize(kind.chunks)));
      if (!in_chunks) continue;
      for (int64_t first = 0; first < span.num_tokens; first += args.chunk) {
        const int64_t count = std::min(args.chunk, span.num_tokens - first);
        kind.chunks.push_back({.first_row = u32(span.first_row + first), .num_rows = u32(count)});
      }
    }
  }

  const DeltaClass& chunked() const { return chunked_; }
  const DeltaClass& recurrent() const { return recurrent_; }

  /// Whether the rows that are worked on, the heads in them, and the states begin at 16 bytes.
  bool rows_are_aligned() const {
    const auto bytes = static_cast<uint64_t>(dtype_bytes(args_.qkv.dtype));
    return is_aligned(args_.qkv) && is_aligned(static_cast<uint64_t>(args_.k_dim) * bytes) && args_.v_dim % 4 == 0;
  }
  bool is_recurrent_aligned() const {
    const auto row_bytes = static_cast<uint64_t>(args_.qkv.cols * dtype_bytes(args_.qkv.dtype));
    bool aligned = rows_are_aligned();
    for (const DeltaSequence& sequence : recurrent_.sequences) {
      aligned = aligned && is_aligned(sequence.state);
      if (sequence.num_replayed > 0) aligned = aligned && is_aligned(sequence.held_qkv) && is_aligned(row_bytes);
    }
    return aligned;
  }

 private:
  bool fits_chunks(std::size_t s) const {
    return have_chunks(args_.k_dim, args_.v_dim) && is_aligned(reinterpret_cast<uint64_t>(args_.states[s]));
  }
  DeltaSequence describe(std::size_t s, int64_t first_chunk) const {
    const SequenceSpan& span = args_.sequences[s];
    const HeldDeltaRows held = span.num_replayed > 0 ? args_.held[s] : HeldDeltaRows{};
    return {.state = reinterpret_cast<uint64_t>(args_.states[s]),
            .held_qkv = address_of(held.qkv),
            .held_decay = address_of(held.decay),
            .held_beta = address_of(held.beta),
            .first_row = u32(span.first_row),
            .num_tokens = u32(span.num_tokens),
            .num_replayed = u32(span.num_replayed),
            .num_taken = u32(span.num_taken()),
            .first_chunk = u32(first_chunk),
            .unused = 0};
  }

  const GatedDeltaRuleArgs& args_;
  DeltaClass chunked_, recurrent_;
};

void check_delta(const GatedDeltaRuleArgs& args) {
  FERRY_CHECK(args.qkv.dtype == args.out.dtype);
  FERRY_CHECK_EQ(args.num_v_heads % args.num_k_heads, 0);
  FERRY_CHECK_EQ(args.qkv.cols, 2 * args.num_k_heads * args.k_dim + args.num_v_heads * args.v_dim);
  FERRY_CHECK_EQ(args.out.cols, args.num_v_heads * args.v_dim);
  FERRY_CHECK_EQ(args.sequences.size(), args.states.size());
  FERRY_CHECK_GE(args.chunk, 1);
  FERRY_CHECK_LE(args.chunk, int64_t{kMaxChunk});
  for (const SequenceSpan& span : args.sequences) {
    FERRY_CHECK(span.form == DeltaForm::kRecurrent || span.num_replayed + span.num_held == 0);
    FERRY_CHECK(span.num_replayed == 0 || args.held.size() == args.sequences.size());
  }
}

DeltaRulePush push_of(const GatedDeltaRuleArgs& args) {
  return {.qkv = address_of(args.qkv),
          .decay = address_of(args.decay),
          .beta = address_of(args.beta),
          .result = address_of(args.out),
          .sequences = 0,
          .chunks = 0,
          .prepared = 0,
          .copies = 0,
          .qkv_stride = stride_of(args.qkv),
          .result_stride = stride_of(args.out),
          .qkv_columns = u32(args.qkv.cols),
          .num_sequences = 0,
          .num_chunks = 0,
          .chunk = u32(args.chunk),
          .num_k_heads = u32(args.num_k_heads),
          .num_v_heads = u32(args.num_v_heads)};
}

/// Tells of what every dispatch reads of the call's rows.
void reads_rows(VulkanStream& stream, const GatedDeltaRuleArgs& args) {
  stream.reads(args.qkv);
  stream.reads(args.decay, args.qkv.rows * args.num_v_heads);
  stream.reads(args.beta, args.qkv.rows * args.num_v_heads);
}

/// Tells of the states and the rows of the result that belong to the sequences.
void writes_results(VulkanStream& stream, const GatedDeltaRuleArgs& args, const std::vector<DeltaSequence>& sequences) {
  const auto state_bytes = static_cast<uint64_t>(args.num_v_heads * args.k_dim * args.v_dim) * sizeof(float);
  for (const DeltaSequence& sequence : sequences) {
    const Range state{sequence.state, sequence.state + state_bytes};
    stream.reads(state);
    stream.writes(state);
    stream.writes(args.out.rows_from(sequence.first_row, sequence.num_tokens));
  }
}

void run_recurrent(VulkanStream& stream, const GatedDeltaRuleArgs& args, const DeltaPlan& plan) {
  const std::vector<DeltaSequence>& sequences = plan.recurrent().sequences;
  if (sequences.empty()) return;
  DeltaRulePush push = push_of(args);
  push.sequences = stream.upload(std::span<const DeltaSequence>(sequences));
  push.num_sequences = u32(std::ssize(sequences));
  reads_rows(stream, args);
  writes_results(stream, args, sequences);
  const auto row_bytes = static_cast<uint64_t>(args.qkv.cols * dtype_bytes(args.qkv.dtype)),
             gate_bytes = static_cast<uint64_t>(args.num_v_heads) * sizeof(float);
  for (const DeltaSequence& sequence : sequences) {
    if (sequence.num_replayed == 0) continue;
    stream.reads(Range{sequence.held_qkv, sequence.held_qkv + sequence.num_replayed * row_bytes});
    stream.reads(Range{sequence.held_decay, sequence.held_decay + sequence.num_replayed * gate_bytes});
    stream.reads(Range{sequence.held_beta, sequence.held_beta + sequence.num_replayed * gate_bytes});
  }
  const int64_t slices = (args.v_dim + kDeltaSliceColumns - 1) / kDeltaSliceColumns;
  stream.dispatch({find_shader("delta_recurrent", args.qkv.dtype),
                   {kDeltaInvocations, plan.is_recurrent_aligned() ? 1u : 0u, u32(args.k_dim), u32(args.v_dim)}},
                  push, grid_of_rows(std::ssize(sequences) * args.num_v_heads * slices));
}

/// Whether the device's matrices can take the chunks, to the precision of fp32.
bool has_matrices(const DeviceTraits& traits, DType dtype) {
  constexpr Fragment kFragment{kDeltaMatrixColumns, kDeltaMatrixColumns, kDeltaMatrixColumns};
  return dtype == DType::kBF16 && traits.bf16 == kFragment && traits.subgroup_size >= kDeltaMatrixColumns &&
         traits.subgroup_size * kDeltaMatrixSubgroups <= traits.max_invocations;
}

/// What the two dispatches of the chunk form hand to each other, in bytes.
struct Handover {
  uint64_t prepared = 0, copies = 0;

  Handover(int64_t num_chunks, int64_t num_k_heads, int64_t num_v_heads, bool by_matrices) {
    const auto v_parts = static_cast<uint64_t>(num_chunks * num_v_heads),
               k_parts = static_cast<uint64_t>(num_chunks * num_k_heads);
    prepared = v_parts * (by_matrices ? kTermsBytes : kChunkFloats * sizeof(float));
    copies = by_matrices ? k_parts * 3 * kCopyBytes : 0;
  }
  uint64_t bytes() const { return prepared + copies; }
};

void run_chunked(VulkanStream& stream, const GatedDeltaRuleArgs& args, const DeltaPlan& plan) {
  const DeltaClass& work = plan.chunked();
  if (work.sequences.empty()) return;
  const bool by_matrices = has_matrices(stream.traits(), args.qkv.dtype);
  const Handover handover(std::ssize(work.chunks), args.num_k_heads, args.num_v_heads, by_matrices);
  DeltaRulePush push = push_of(args);
  push.sequences = stream.upload(std::span<const DeltaSequence>(work.sequences));
  push.chunks = stream.upload(std::span<const DeltaChunk>(work.chunks));
  push.prepared = stream.scratch(handover.bytes());
  push.copies = push.prepared + handover.prepared;
  push.num_sequences = u32(std::ssize(work.sequences));
  push.num_chunks = u32(std::ssize(work.chunks));
  const Range handed{push.prepared, push.copies + handover.copies};
  const uint32_t aligned = plan.rows_are_aligned() ? 1 : 0;
  reads_rows(stream, args);
  stream.writes(handed);
  const char* prepare = by_matrices ? "delta_chunk_prepare_matrix" : "delta_chunk_prepare";
  stream.dispatch({find_shader(prepare, args.qkv.dtype), {kChunkInvocations, aligned}}, push,
                  grid_of_rows(push.num_chunks * args.num_k_heads));
  stream.reads(handed);
  reads_rows(stream, args);
  writes_results(stream, args, work.sequences);
  const int64_t heads = push.num_sequences * args.num_v_heads;
  if (by_matrices) {
    const uint32_t subgroup = stream.traits().subgroup_size;
    stream.dispatch({find_shader("delta_chunk_scan_matrix", args.qkv.dtype),
                     {kDeltaMatrixSubgroups * subgroup, aligned, subgroup, is_aligned(args.out) ? 1U : 0U}},
                    push, grid_of_rows(heads * (kChunkDim / kDeltaMatrixColumns)));
  } else {
    stream.dispatch({find_shader("delta_chunk_scan", args.qkv.dtype), {kChunkInvocations, aligned}}, push,
                    grid_of_rows(heads * (kChunkDim / kDeltaSliceColumns)));
  }
}

}  // namespace

/// Chunks are counted from each sequence's first row, so that of every sequence the last one may have a single row.
int64_t gated_delta_rule_scratch_bytes(const DeviceTraits& traits, const OpLimits& limits) {
  if (!have_chunks(limits.k_dim, limits.v_dim)) return 0;
  const int64_t num_sequences = std::min(limits.max_sequences, limits.max_tokens);
  const int64_t num_chunks = (limits.max_tokens + num_sequences * (limits.chunk - 1)) / limits.chunk;
  const Handover handover(num_chunks, limits.num_k_heads, limits.num_v_heads, has_matrices(traits, limits.dtype));
  return static_cast<int64_t>(handover.bytes());
}

void gated_delta_rule(VulkanStream& stream, const GatedDeltaRuleArgs& args) {
  check_delta(args);
  const DeltaPlan plan(args);
  run_recurrent(stream, args, plan);
  run_chunked(stream, args, plan);
}

void delta_gates(VulkanStream& stream, const DeltaGatesArgs& args) {
  check_same_shape(args.a, args.b);
  const int64_t count = args.a.rows * args.a.cols;
  stream.reads(args.a);
  stream.reads(args.b);
  stream.reads(args.a_log, args.a.cols);
  stream.reads(args.dt_bias, args.a.cols);
  stream.writes(args.decay, count);
  stream.writes(args.beta, count);
  const DeltaGatesPush push{.a = address_of(args.a),
                            .b = address_of(args.b),
                            .a_log = address_of(args.a_log),
                            .dt_bias = address_of(args.dt_bias),
                            .decay = address_of(args.decay),
                            .beta = address_of(args.beta),
                            .a_stride = stride_of(args.a),
                            .b_stride = stride_of(args.b),
                            .num_rows = u32(args.a.rows),
                            .num_heads = u32(args.a.cols)};
  stream.dispatch({find_shader("delta_gates", args.a.dtype), {kDeltaInvocations}}, push,
                  grid_of_elements(count, kDeltaInvocations));
}

}  // namespace ferry::vulkan
