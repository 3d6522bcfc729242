#include "tests/support/made_capture.h"

#include <algorithm>
#include <cmath>

#include "runtime/model/operators.h"

namespace ferry {
namespace {

constexpr int64_t kUs = 1000;  // ns
constexpr int32_t kNumExperts = 8;
constexpr int64_t kTopK = 2;
constexpr double kTicksPerNs = 2;  // of every rank's counter

/// Walks through the run on the coordinator's clock and writes what each rank would have recorded.
class Maker {
 public:
  explicit Maker(const MadeRun& run) : run_(run) {
    for (int32_t r = 0; r < run.world_size; ++r) {
      RankCapture rank{.rank = r,
                       .host = r == 0 ? "alpha" : "beta",
                       .boot_id = r == 0 ? "boot-a" : "boot-b",
                       .pid = 4000 + r,
                       .num_threads = 2,
                       .ticks = {.base_ticks = 1000000, .base_ns = kEpoch, .ns_per_tick = 1 / kTicksPerNs},
                       .span_cost_ns = 20,
                       .peak_rss_bytes = (int64_t{r} + 1) << 20};
      if (r > 0) {
        rank.alignment = {.reference_ns = kEpoch,
                          .offset_ns = run.clock_offset_ns,
                          .drift = run.clock_drift,
                          .bound_ns = run.clock_bound_ns,
                          .num_samples = 64};
      }
      rank.threads.push_back({.name = r == 0 ? "engine" : "experts", .tid = 5000 + r, .num_lost = 0, .records = {}});
      ranks_.push_back(std::move(rank));
    }
  }

  Capture make() {
    CaptureInfo info{.version = "0.1.0",
                     .command = "serve",
                     .transport = run_.world_size > 1 ? "mpi" : "local",
                     .world_size = run_.world_size,
                     .start_epoch_ns = 1'760'000'000'000'000'000,
                     .model = model(),
                     .read_bytes_per_s = 20e9,
                     .flops_per_s = 500e9};
    for (int32_t e = 0; e < kNumExperts; ++e) info.expert_rank.push_back(rank_of(e));
    info.expert_tokens.assign(static_cast<std::size_t>(run_.num_layers), std::vector<int64_t>(kNumExperts, 0));
    info_ = &info;
    const int64_t begin = now_;
    now_ += 5 * kUs;
    request(0, Zone::kRequestTokenize, now_, now_ + 20 * kUs, 48);
    now_ += 20 * kUs;
    const int64_t queued = now_;
    span(0, Zone::kIdle, now_, now_ + 10 * kUs, 0, 0, kNoStep, kNoLayer);
    now_ += 10 * kUs;
    const int64_t scheduled = now_ + 2 * kUs;
    request(0, Zone::kRequestQueue, queued, scheduled, 48);
    for (int32_t s = 0; s < run_.num_prefill_steps; ++s) step(Phase::kPrefill, 24);
    request(0, Zone::kRequestPrefill, scheduled, now_ - kUs, 48);
    const int64_t first_token = now_ - kUs;
    for (int32_t s = 0; s < run_.num_decode_steps; ++s) step(Phase::kDecode, 1);
    request(0, Zone::kRequestDecode, first_token, now_ - kUs, static_cast<uint32_t>(run_.num_decode_steps + 1));
    request(0, Zone::kRequestFinish, now_ - kUs, now_ - kUs, 2);
    now_ += 3 * kUs;
    for (RankCapture& rank : ranks_) {
      rank.begin = ticks(rank, begin);
      rank.end = ticks(rank, now_);
    }
    return {.info = info, .ranks = ranks_};
  }

 private:
  static constexpr int64_t kEpoch = 77'000'000'000;  // ns; where the coordinator's clock stands

  ModelFacts model() const {
    ModelConfig c;
    c.hidden_dim = 64;
    c.vocab_size = 1000;
    c.attention = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 16, .rotary_dim = 4, .has_gate = true};
    c.gated_delta = {.num_k_heads = 2, .num_v_heads = 4, .k_dim = 16, .v_dim = 16, .conv_kernel = 4};
    c.moe = {.num_experts = kNumExperts, .top_k = kTopK, .intermediate_dim = 32, .shared_intermediate_dim = 32};
    ModelFacts m{.name = "made", .dtype = "bf16", .top_k = kTopK};
    for (int32_t l = 0; l < run_.num_layers; ++l) {
      c.layers.push_back({is_attention(l) ? Mixer::kAttention : Mixer::kGatedDelta, Ffn::kMixtureOfExperts});
      m.layer_types.emplace_back(mixer_name(c.layers.back().mixer));
    }
    m.operators = describe_operators(c, {}, DType::kBF16, DType::kBF16);
    return m;
  }

  static bool is_attention(int32_t layer) { return layer % 2 == 1; }
  int32_t rank_of(int32_t expert) const { return run_.world_size == 1 ? 0 : 1 + expert * (run_.world_size - 1) / kNumExperts; }

  /// The counter of `rank` when the coordinator's clock says kEpoch + `at`.
  uint64_t ticks(const RankCapture& rank, int64_t at) const {
    const double coordinator = static_cast<double>(at);  // since kEpoch
    const double own = (coordinator - rank.alignment.offset_ns) / (1 + rank.alignment.drift);
    return rank.ticks.base_ticks + static_cast<uint64_t>(std::llround(own * kTicksPerNs));
  }

  void span(int32_t r, Zone zone, int64_t begin, int64_t end, uint32_t a, uint32_t b, uint32_t step, int16_t layer) {
    RankCapture& rank = ranks_[static_cast<std::size_t>(r)];
    rank.threads[0].records.push_back(
        {.begin = ticks(rank, begin), .end = ticks(rank, end), .step = step, .zone = zone, .layer = layer, .a = a, .b = b});
  }
  void request(uint32_t id, Zone zone, int64_t begin, int64_t end, uint32_t b) {
    span(0, zone, begin, end, id, b, kNoStep, kNoLayer);
  }
  /// An operator of the coordinator: takes `us` and moves the time on.
  void op(Zone zone, int64_t us, uint32_t a, uint32_t b = 0) {
    span(0, zone, now_, now_ + us * kUs, a, b, step_, layer_);
    now_ += us * kUs;
  }

  void step(Phase phase, uint32_t rows) {
    const int64_t begin = now_;
    op(Zone::kSchedule, 2, 0);
    const int64_t run_begin = now_;
    op(Zone::kEmbedding, 1, rows);
    for (layer_ = 0; layer_ < run_.num_layers; ++layer_) layer(phase, rows);
    layer_ = kNoLayer;
    op(Zone::kFinalNorm, 1, 1);
    op(Zone::kLmHead, 12, 1);
    op(Zone::kSample, 1, 1);
    request_step(run_begin, rows);
    op(Zone::kPublish, 2, 1);
    span(0, Zone::kRunningRequests, now_, now_, 1, 0, step_, kNoLayer);
    span(0, Zone::kWaitingRequests, now_, now_, 0, 0, step_, kNoLayer);
    span(0, Zone::kUsedKvBlocks, now_, now_, 4, 0, step_, kNoLayer);
    span(0, Zone::kStep, begin, now_, rows, pack_plan(phase, 1), step_, kNoLayer);
    ++step_;
  }
  void request_step(int64_t begin, uint32_t rows) { span(0, Zone::kRequestStep, begin, now_, 0, rows, step_, kNoLayer); }

  void layer(Phase phase, uint32_t rows) {
    op(Zone::kInputNorm, 1, rows);
    if (is_attention(layer_)) {
      op(Zone::kQProj, 4, rows);
      op(Zone::kAttention, phase == Phase::kPrefill ? 9 : 3, rows, 1);
      op(Zone::kOProj, 3, rows);
    } else {
      op(Zone::kInProjQkv, 5, rows);
      op(Zone::kCausalConv1d, 1, rows, 1);
      op(phase == Phase::kPrefill ? Zone::kChunkDeltaRule : Zone::kRecurrentDeltaRule, 7, rows, 1);
      op(Zone::kOutProj, 3, rows);
    }
    op(Zone::kAdd, 1, rows);
    op(Zone::kRouter, 2, rows);
    op(Zone::kGatingTopK, 1, rows);
    experts(rows);
    op(Zone::kAdd, 1, rows);
  }

  /// Rows of this layer for each expert; an even share, or half for the hot one.
  std::vector<int64_t> expert_rows(uint32_t rows) const {
    const int64_t total = rows * kTopK;
    std::vector<int64_t> counts(kNumExperts, 0);
    const bool is_hot = run_.hot_expert >= 0 && layer_ == 1;
    const int64_t hot = is_hot ? (total + 1) / 2 : 0;
    if (is_hot) counts[static_cast<std::size_t>(run_.hot_expert)] = hot;
    for (int64_t i = 0; i < total - hot; ++i) ++counts[static_cast<std::size_t>((i + step_ * 3 + layer_) % kNumExperts)];
    return counts;
  }

  void experts(uint32_t rows) {
    const std::vector<int64_t> counts = expert_rows(rows);
    std::vector<int64_t> rank_rows(static_cast<std::size_t>(run_.world_size), 0);
    for (int32_t e = 0; e < kNumExperts; ++e) {
      rank_rows[static_cast<std::size_t>(rank_of(e))] += counts[static_cast<std::size_t>(e)];
      info_->expert_tokens[static_cast<std::size_t>(layer_)][static_cast<std::size_t>(e)] +=
          counts[static_cast<std::size_t>(e)];
    }
    op(Zone::kInitRouting, 1, rows);
    if (run_.world_size == 1) {
      const int64_t begin = now_;
      op(Zone::kGroupedGateUp, 10, static_cast<uint32_t>(rank_rows[0]), kNumExperts);
      op(Zone::kGroupedDown, 6, static_cast<uint32_t>(rank_rows[0]), kNumExperts);
      span(0, Zone::kExperts, begin, now_, static_cast<uint32_t>(rank_rows[0]), 0, step_, layer_);
      op(Zone::kCombine, 1, rows);
      return;
    }
    std::vector<int64_t> posted(rank_rows.size()), ready(rank_rows.size());
    for (int32_t w = 1; w < run_.world_size; ++w) {
      const auto at = static_cast<std::size_t>(w);
      posted[at] = now_ + kUs;
      op(Zone::kDispatch, 1, static_cast<uint32_t>(rank_rows[at]), static_cast<uint32_t>(w));
      ready[at] = work(w, posted[at], rank_rows[at]);
    }
    op(Zone::kSharedGateUp, 4, rows);
    op(Zone::kSharedDown, 3, rows);
    for (int32_t w = 1; w < run_.world_size; ++w) {
      const auto at = static_cast<std::size_t>(w);
      const int64_t arrival = std::max(now_, ready[at] + way(w));
      span(0, Zone::kWaitCombine, now_, arrival, 0, static_cast<uint32_t>(w), step_, layer_);
      now_ = arrival;
      const auto bytes = static_cast<uint32_t>(48 + rank_rows[at] * 128);
      span(0, Zone::kDispatchSend, posted[at], now_, bytes, static_cast<uint32_t>(w), step_, layer_);
      span(0, Zone::kCombineReceive, posted[at] - kUs / 2, now_, bytes, static_cast<uint32_t>(w), step_, layer_);
      span(0, Zone::kRankRows, now_, now_, static_cast<uint32_t>(rank_rows[at]), static_cast<uint32_t>(w), step_, layer_);
    }
    op(Zone::kCombine, 1, rows);
    op(Zone::kSharedMerge, 1, rows);
  }

  int64_t way(int32_t w) const { return (w == run_.far_rank ? 2 + run_.far_us : 2) * kUs; }

  /// What worker `w` does with a message posted at `posted`; returns when its reply is posted.
  int64_t work(int32_t w, int64_t posted, int64_t rows) {
    const auto a = static_cast<uint32_t>(rows), bytes = static_cast<uint32_t>(48 + rows * 128);
    const int64_t arrival = posted + way(w);
    const int64_t waits_from = posted - 3 * kUs;
    span(w, Zone::kDispatchReceive, waits_from, arrival, bytes, 0, step_, layer_);
    span(w, Zone::kWaitDispatch, waits_from, arrival, 0, 0, step_, layer_);
    const double factor = run_.slow_rank == w ? run_.slow_factor : 1;
    const auto time = [&](int64_t us) { return static_cast<int64_t>(static_cast<double>(us * kUs) * factor); };
    int64_t t = arrival;
    const auto part = [&](Zone zone, int64_t us, uint32_t b) {
      span(w, zone, t, t + time(us), a, b, step_, layer_);
      t += time(us);
    };
    if (rows > 0) {
      part(Zone::kPermute, 1, 0);
      part(Zone::kGroupedGateUp, 4 + rows / 4, 2);
      part(Zone::kExpertQuantize, 1, 0);
      part(Zone::kGroupedDown, 2 + rows / 8, 2);
    }
    span(w, Zone::kExperts, arrival, t, a, 0, step_, layer_);
    span(w, Zone::kCombineSend, t, t + kUs, bytes, 0, step_, layer_);
    span(w, Zone::kWaitSend, t, t + kUs, 0, 0, step_, layer_);
    return t;
  }

  const MadeRun run_;
  std::vector<RankCapture> ranks_;
  CaptureInfo* info_ = nullptr;
  int64_t now_ = 0;
  uint32_t step_ = 0;
  int16_t layer_ = kNoLayer;
};

}  // namespace

Capture make_made_capture(const MadeRun& run) { return Maker(run).make(); }

}  // namespace ferry
