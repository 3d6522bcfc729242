#pragma once

#include <cstdint>
#include <string>

// What can be recorded: one closed list, known at compile time, so that a record carries a number and no string ever enters a
// ring. Operators carry the names that readers of Ascend profiles know (GroupedMatmul, MoeGatingTopK, …).

namespace ferry {

/// What a span stands for, and so how views count it.
enum class ZoneKind : uint8_t {
  kStep,      // one step of the engine: the window that everything else is divided into
  kCompute,   // an operator at work on the thread that runs it
  kHost,      // other work of the host: scheduling, text, control
  kWait,      // the thread waits for a peer, a lock or work; never part of an operator's time
  kTransfer,  // a message in flight, from its post to the completion that this rank sees; overlaps whatever the thread does
  kRequest,   // a stage in a request's life; overlaps other requests
  kCounter,   // a value at its end; where begin is earlier, what was counted since
  kSection,   // what the program does its steps for, or what it does instead of steps; holds many of them
};

/// The row of the layer table that a span's time goes to.
enum class Part : uint8_t {
  kOther,
  kDeltaNet,
  kAttention,
  kShortConv,
  kRouter,
  kDispatch,
  kExperts,
  kCombine,
  kSharedExpert,
  kDenseFfn,
  kNorm,
  kHead,
  kSample,
  kVision,
};
inline constexpr int kNumParts = 14;
const char* part_name(Part part);  // "other", "deltanet", …

/// How much is recorded. kSteps is always on: the flight recorder.
enum class TraceLevel : int8_t {
  kOff = -1,       // nothing at all
  kSteps = 0,      // steps, transfers, waits for peers, requests
  kOperators = 1,  // and every operator of every layer
  kThreads = 2,    // and each pool thread's share, and waits for locks
};

// Every zone: enumerator, name, kind, part, level, and what arguments a and b are ("" if unused).
#define FERRY_ZONES(X)                                                                                    \
  X(kStep, "step", kStep, kOther, 0, "tokens", "plan")                                                    \
  X(kIdle, "idle", kWait, kOther, 0, "", "")                                                              \
  X(kSchedule, "Schedule", kHost, kOther, 1, "", "")                                                      \
  X(kPublish, "Publish", kHost, kOther, 1, "tokens", "")                                                  \
  X(kEmbedding, "Embedding", kCompute, kHead, 1, "rows", "")                                              \
  X(kRopeTable, "RopeTable", kCompute, kOther, 1, "rows", "")                                             \
  X(kInputNorm, "RmsNorm", kCompute, kNorm, 1, "rows", "")                                                \
  X(kPostAttentionNorm, "RmsNorm.post_attention", kCompute, kNorm, 1, "rows", "")                         \
  X(kAdd, "Add", kCompute, kNorm, 1, "rows", "")                                                          \
  X(kQuantizeRows, "DynamicQuant", kCompute, kNorm, 1, "rows", "")                                        \
  X(kInProjQkv, "MatMul.in_proj_qkv", kCompute, kDeltaNet, 1, "rows", "")                                 \
  X(kInProjZ, "MatMul.in_proj_z", kCompute, kDeltaNet, 1, "rows", "")                                     \
  X(kInProjB, "MatMul.in_proj_b", kCompute, kDeltaNet, 1, "rows", "")                                     \
  X(kInProjA, "MatMul.in_proj_a", kCompute, kDeltaNet, 1, "rows", "")                                     \
  X(kCausalConv1d, "causal_conv1d", kCompute, kDeltaNet, 1, "rows", "sequences")                          \
  X(kDeltaGates, "fused_gdn_gating", kCompute, kDeltaNet, 1, "rows", "")                                  \
  X(kRecurrentDeltaRule, "fused_recurrent_gated_delta_rule", kCompute, kDeltaNet, 1, "rows", "sequences") \
  X(kChunkDeltaRule, "chunk_gated_delta_rule", kCompute, kDeltaNet, 1, "rows", "sequences")               \
  X(kGatedNorm, "GatedRmsNorm", kCompute, kDeltaNet, 1, "rows", "")                                       \
  X(kOutProj, "MatMul.out_proj", kCompute, kDeltaNet, 1, "rows", "")                                      \
  X(kQProj, "MatMul.q_proj", kCompute, kAttention, 1, "rows", "")                                         \
  X(kKProj, "MatMul.k_proj", kCompute, kAttention, 1, "rows", "")                                         \
  X(kVProj, "MatMul.v_proj", kCompute, kAttention, 1, "rows", "")                                         \
  X(kQkNorm, "RmsNorm.qk", kCompute, kAttention, 1, "rows", "")                                           \
  X(kRope, "RotaryEmbedding", kCompute, kAttention, 1, "rows", "")                                        \
  X(kKvAppend, "ReshapeAndCache", kCompute, kAttention, 1, "rows", "")                                    \
  X(kAttention, "FusedInferAttentionScore", kCompute, kAttention, 1, "rows", "row_keys")                  \
  X(kSigmoidGate, "SigmoidMul", kCompute, kAttention, 1, "rows", "")                                      \
  X(kOProj, "MatMul.o_proj", kCompute, kAttention, 1, "rows", "")                                         \
  X(kRouter, "MatMul.router", kCompute, kRouter, 1, "rows", "")                                           \
  X(kGatingTopK, "MoeGatingTopK", kCompute, kRouter, 1, "rows", "")                                       \
  X(kInitRouting, "MoeInitRouting", kCompute, kDispatch, 1, "rows", "")                                   \
  X(kDispatch, "MoeDistributeDispatch", kCompute, kDispatch, 1, "rows", "peer")                           \
  X(kExperts, "MoeExperts", kHost, kExperts, 1, "rows", "peer")                                           \
  X(kPermute, "MoeTokenPermute", kCompute, kExperts, 1, "rows", "")                                       \
  X(kGroupedGateUp, "GroupedMatmulSwiglu", kCompute, kExperts, 1, "rows", "experts")                      \
  X(kExpertQuantize, "DynamicQuant.experts", kCompute, kExperts, 1, "rows", "")                           \
  X(kGroupedDown, "GroupedMatmul.down", kCompute, kExperts, 1, "rows", "experts")                         \
  X(kCombine, "MoeTokenUnpermute", kCompute, kCombine, 1, "rows", "slots")                                \
  X(kSharedGateUp, "MatMulSwiglu.shared_gate_up", kCompute, kSharedExpert, 1, "rows", "")                 \
  X(kSharedDown, "MatMul.shared_down", kCompute, kSharedExpert, 1, "rows", "")                            \
  X(kSharedGate, "MatMul.shared_gate", kCompute, kSharedExpert, 1, "rows", "")                            \
  X(kSharedMerge, "SharedExpertMerge", kCompute, kSharedExpert, 1, "rows", "")                            \
  X(kGatherRows, "GatherRows", kCompute, kHead, 1, "rows", "")                                            \
  X(kFinalNorm, "RmsNorm.final", kCompute, kHead, 1, "rows", "")                                          \
  X(kLmHead, "MatMul.lm_head", kCompute, kHead, 1, "rows", "")                                            \
  X(kSample, "ArgMax.sample", kCompute, kSample, 1, "rows", "")                                           \
  X(kDispatchSend, "hcom_alltoallv.dispatch.send", kTransfer, kDispatch, 0, "bytes", "peer")              \
  X(kDispatchReceive, "hcom_alltoallv.dispatch.receive", kTransfer, kDispatch, 0, "bytes", "peer")        \
  X(kCombineSend, "hcom_alltoallv.combine.send", kTransfer, kCombine, 0, "bytes", "peer")                 \
  X(kCombineReceive, "hcom_alltoallv.combine.receive", kTransfer, kCombine, 0, "bytes", "peer")           \
  X(kWaitDispatch, "wait.dispatch", kWait, kDispatch, 0, "", "peer")                                      \
  X(kWaitCombine, "wait.combine", kWait, kCombine, 0, "", "peer")                                         \
  X(kWaitSend, "wait.send", kWait, kDispatch, 0, "", "peer")                                              \
  X(kWaitLock, "wait.lock", kWait, kOther, 2, "", "")                                                     \
  X(kPoolTask, "pool_share", kHost, kOther, 2, "tasks", "")                                               \
  X(kRequestTokenize, "request.tokenize", kRequest, kOther, 0, "request", "tokens")                       \
  X(kRequestQueue, "request.queue", kRequest, kOther, 0, "request", "prompt_tokens")                      \
  X(kRequestPrefill, "request.prefill", kRequest, kOther, 0, "request", "prompt_tokens")                  \
  X(kRequestDecode, "request.decode", kRequest, kOther, 0, "request", "new_tokens")                       \
  X(kRequestStep, "request.step", kRequest, kOther, 0, "request", "tokens")                               \
  X(kRequestFinish, "request.finish", kRequest, kOther, 0, "request", "reason")                           \
  X(kRunningRequests, "running_requests", kCounter, kOther, 0, "value", "")                               \
  X(kWaitingRequests, "waiting_requests", kCounter, kOther, 0, "value", "")                               \
  X(kUsedKvBlocks, "used_kv_blocks", kCounter, kOther, 0, "value", "")                                    \
  X(kRankRows, "rank_rows", kCounter, kExperts, 0, "value", "peer")                                       \
  X(kSection, "section", kSection, kOther, 0, "size", "section")                                          \
  X(kCoreWait, "wait.core_us", kCounter, kOther, 0, "value", "thread")                                    \
  X(kPreemptions, "preemptions", kCounter, kOther, 0, "value", "")                                        \
  X(kNotRunning, "not_running", kWait, kOther, 0, "core_wait_us", "")                                     \
  X(kConvInProj, "MatMul.conv_in_proj", kCompute, kShortConv, 1, "rows", "")                              \
  X(kConvGate, "Mul.conv_gate", kCompute, kShortConv, 1, "rows", "")                                      \
  X(kShortConv, "short_conv1d", kCompute, kShortConv, 1, "rows", "sequences")                             \
  X(kConvOutProj, "MatMul.conv_out_proj", kCompute, kShortConv, 1, "rows", "")                            \
  X(kDenseGateUp, "MatMulSwiglu.gate_up", kCompute, kDenseFfn, 1, "rows", "")                             \
  X(kDenseDown, "MatMul.down", kCompute, kDenseFfn, 1, "rows", "")                                        \
  X(kVisionProduct, "MatMul.vision", kCompute, kVision, 1, "rows", "")                                    \
  X(kVisionNorm, "LayerNorm.vision", kCompute, kVision, 1, "rows", "")                                    \
  X(kVisionPositions, "PositionEmbedding.vision", kCompute, kVision, 1, "rows", "")                       \
  X(kVisionRope, "RotaryEmbedding.vision", kCompute, kVision, 1, "rows", "")                              \
  X(kVisionAttention, "FlashAttentionScore.vision", kCompute, kVision, 1, "rows", "row_keys")             \
  X(kEncodeMedia, "encode media", kHost, kVision, 0, "patches", "")                                       \
  X(kDraft, "draft", kHost, kOther, 0, "rows", "sequences")                                               \
  X(kMtpFc, "MatMul.mtp_fc", kCompute, kHead, 1, "rows", "")                                              \
  X(kRequestVerify, "request.verify", kRequest, kOther, 0, "request", "drafts")                           \
  X(kDeviceCopy, "Memcpy", kCompute, kOther, 1, "bytes", "")                                              \
  X(kDeviceOther, "unnamed", kCompute, kOther, 1, "", "")                                                 \
  X(kWaitDevice, "wait.device", kWait, kOther, 1, "", "")                                                 \
  X(kDeviceDispatches, "device_dispatches", kCounter, kOther, 1, "value", "")                             \
  X(kDeviceBarriers, "device_barriers", kCounter, kOther, 1, "value", "")                                 \
  X(kSwapBlocks, "swap blocks", kHost, kOther, 0, "saved", "restored")                                    \
  X(kRequestPreempted, "request.preempted", kRequest, kOther, 0, "request", "tokens")                     \
  X(kWorkerChange, "worker change", kHost, kOther, 0, "state", "peer")                                    \
  X(kCoveredRows, "covered_rows", kCounter, kExperts, 0, "value", "peer")                                 \
  X(kReadExperts, "read experts", kHost, kExperts, 0, "experts", "")                                      \
  X(kPlacementChange, "placement change", kHost, kOther, 0, "event", "epoch")

enum class Zone : uint8_t {
#define FERRY_ZONE_ENUMERATOR(id, name, kind, part, level, a, b) id,
  FERRY_ZONES(FERRY_ZONE_ENUMERATOR)
#undef FERRY_ZONE_ENUMERATOR
};

struct ZoneInfo {
  const char* name;
  ZoneKind kind;
  Part part;
  TraceLevel level;    // recorded from this level on
  const char* a_name;  // of SpanRecord::a, "" if unused
  const char* b_name;
};

inline constexpr ZoneInfo kZones[] = {
#define FERRY_ZONE_INFO(id, name, kind, part, level, a, b) \
  {name, ZoneKind::kind, Part::part, static_cast<TraceLevel>(level), a, b},
    FERRY_ZONES(FERRY_ZONE_INFO)
#undef FERRY_ZONE_INFO
};
inline constexpr int kNumZones = sizeof kZones / sizeof kZones[0];

constexpr const ZoneInfo& zone_info(Zone zone) { return kZones[static_cast<int>(zone)]; }

/// What a step is made of, as the scheduler planned it.
enum class Phase : uint8_t { kPrefill, kDecode, kMixed };
const char* phase_name(Phase phase);  // "prefill", "decode", "mixed"

/// Argument b of a kStep: phase and number of sequences.
constexpr uint32_t pack_plan(Phase phase, uint32_t num_sequences) {
  return static_cast<uint32_t>(phase) << 24 | (num_sequences & 0xffffff);
}
constexpr Phase plan_phase(uint32_t plan) { return static_cast<Phase>(plan >> 24); }
constexpr uint32_t plan_sequences(uint32_t plan) { return plan & 0xffffff; }

/// Argument b of a kRequestVerify, a request's part in a step that tries drafts of it: how many, and how many were right.
constexpr uint32_t pack_verify(uint32_t num_drafts, uint32_t num_kept) { return num_drafts << 8 | (num_kept & 0xff); }
constexpr uint32_t verify_drafts(uint32_t verify) { return verify >> 8; }
constexpr uint32_t verify_kept(uint32_t verify) { return verify & 0xff; }

/// What a kSection is about. Steps of a section are counted apart from those of others.
enum class SectionRole : uint8_t {
  kMeasured,  // steps of one phase and size, which somebody times
  kWarmUp,    // the same before the clock runs
  kAside,     // no steps at all: the program is busy with itself, nobody waits
};
/// Argument b of a kSection; a is its size: tokens of a prompt, sequences of a decode.
constexpr uint32_t pack_section(SectionRole role, Phase phase) {
  return static_cast<uint32_t>(role) << 8 | static_cast<uint32_t>(phase);
}
constexpr SectionRole section_role(uint32_t section) { return static_cast<SectionRole>(section >> 8); }
constexpr Phase section_phase(uint32_t section) { return static_cast<Phase>(section & 0xff); }

/// What a kPlacementChange tells of: experts that come to live elsewhere while steps run. Its argument b is the epoch of the
/// placement that is to be.
enum class PlacementEvent : uint8_t {
  kLook,             // experts could have moved for balance's sake, and do not
  kBegin,            // workers came, go or were lost: all are told what they are to hold
  kBeginForBalance,  // the same, so that layers take less time
  kBeginByHand,      // the same, as somebody has set it
  kGiveUp,           // it will not be
  kSwitch,           // all were ready, and it is
};
/// Argument a of a kPlacementChange; `num_experts`: that workers have to read for it.
constexpr uint32_t pack_placement(PlacementEvent event, int64_t num_experts) {
  return static_cast<uint32_t>(num_experts) << 8 | static_cast<uint32_t>(event);
}
constexpr PlacementEvent placement_event(uint32_t change) { return static_cast<PlacementEvent>(change & 0xff); }
constexpr int64_t placement_experts(uint32_t change) { return change >> 8; }

/// "prefill 64", "decode ×4", "mixed ×4": what is computed at once, as people say it. `size` is tokens of a prefill, else
/// sequences.
std::string work_name(Phase phase, int64_t size);

}  // namespace ferry
