#include "tests/support/decoder_steps.h"

#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <random>

#include "kernels/backend.h"
#include "kernels/host_rows.h"
#include "moe/device_token_dispatcher.h"
#include "runtime/model/cache_shapes.h"
#include "runtime/model/mtp.h"
#include "runtime/model/weights_loader.h"
#include "tests/support/load_experts.h"
#include "tests/support/source_folder.h"

namespace ferry::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTokens = 96, kMaxSequences = 2, kBlockTokens = 16, kNumBlocks = 12, kMaxHeld = 3;

/// A golden model, loaded for one stream.
class Decoder {
 public:
  Decoder(const ModelCase& c, Stream& stream)
      : stream_(stream),
        dir_(source_folder() / "tests" / "golden" / c.model),
        config_(load_config(dir_)),
        checkpoint_(Checkpoint::open(dir_)),
        options_{.dtype = c.dtype, .weights = {.quantization = parse_quantization(c.quantize)}} {
    config_.mtp = lacks_mtp(checkpoint_, config_, options_.weights).empty();
    weights_.emplace(load_trunk(checkpoint_, config_, stream.backend(), stream.pool(), options_));
    const Rank here{0};
    bank_.emplace(load_experts(checkpoint_, config_, ExpertMap::contiguous(config_.moe.num_experts, {&here, 1}), 0,
                               stream.backend().matmul(), stream.pool(), options_));
    dispatcher_ =
        make_in_process_dispatcher(*bank_, stream, {.max_tokens = kMaxTokens, .top_k = config_.moe.top_k, .dtype = c.dtype});
    KvCacheOptions kv = kv_cache_shape(config_, c.dtype, kBlockTokens);
    kv.num_blocks = kNumBlocks;
    kv_cache_.emplace(kv, stream.memory());
    RecurrentStateOptions state = recurrent_state_shape(config_, c.dtype);
    state.num_slots = kMaxSequences;
    state.max_held = kMaxHeld;
    state_.emplace(state, stream.memory());
    trunk_.emplace(config_, *weights_, stream, c.dtype,
                   DecoderLimits{.max_tokens = kMaxTokens, .max_logit_rows = kMaxTokens, .max_sequences = kMaxSequences});
    if (config_.mtp) mtp_.emplace(config_, *weights_, *trunk_, c.dtype);
    logits_ = HostRows(stream, c.dtype, kMaxTokens, config_.vocab_size);
    mtp_hidden_ = Matrix(stream.memory(), c.dtype, kMaxTokens, config_.hidden_dim);
    for (int64_t s = 0; s < kMaxSequences; ++s) state_->reset(stream, s);
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  StepLogits step(std::span<const SequenceRows> pieces) {
    StepRows rows;
    std::vector<int32_t> all;
    for (const SequenceRows& piece : pieces) rows.add(piece);
    const StepInput input = rows.input(64);
    StepLogits logits{.dtype = options_.dtype};
    append(trunk_->forward(input, *kv_cache_, *state_, *dispatcher_), logits);
    if (!mtp_) return logits;
    all.resize(input.token_ids.size());
    std::iota(all.begin(), all.end(), 0);
    const MatrixView hidden = mtp_hidden_.top(std::ssize(all));
    mtp_->copy_hidden(hidden);
    append(mtp_->run({.step = input, .hidden = hidden, .rows = all}, *kv_cache_, *state_, *dispatcher_), logits);
    return logits;
  }

  int64_t vocab_size() const { return config_.vocab_size; }
  const int32_t* blocks_of(int64_t sequence) const { return blocks_.data() + sequence * kNumBlocks / kMaxSequences; }

 private:
  void append(ConstMatrixView rows, StepLogits& logits) {
    logits_.fetch(rows);
    const ConstMatrixView seen = logits_.look();
    const std::byte* first = seen.row_bytes(0);
    logits.bytes.insert(logits.bytes.end(), first, first + seen.rows * seen.cols * dtype_bytes(seen.dtype));
  }

  Stream& stream_;
  fs::path dir_;
  ModelConfig config_;
  Checkpoint checkpoint_;
  LoadOptions options_;
  std::optional<TrunkWeights> weights_;
  std::optional<ExpertBank> bank_;
  std::unique_ptr<TokenDispatcher> dispatcher_;
  std::optional<KvCache> kv_cache_;
  std::optional<RecurrentState> state_;
  std::optional<Trunk> trunk_;
  std::optional<MtpLayer> mtp_;
  HostRows logits_;
  Matrix mtp_hidden_;
  std::array<int32_t, kNumBlocks> blocks_{};
};

}  // namespace

std::string case_name(const ModelCase& c) { return c.model + " " + dtype_name(c.dtype) + " " + c.quantize; }
void PrintTo(const ModelCase& c, std::ostream* out) { *out << case_name(c); }

std::vector<float> StepLogits::values() const {
  return visit_dtype(dtype, [&]<class T>() {
    std::vector<float> values(bytes.size() / sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = to_float(reinterpret_cast<const T*>(bytes.data())[i]);
    return values;
  });
}

std::vector<StepLogits> run_decoder_steps(const ModelCase& c, Stream& stream) {
  Decoder decoder(c, stream);
  std::mt19937 random(5);
  std::uniform_int_distribution<TokenId> id(0, static_cast<TokenId>(decoder.vocab_size() - 1));
  std::vector<TokenId> tokens(200);
  for (TokenId& token : tokens) token = id(random);
  const std::span<const TokenId> all = tokens;
  using Logits = SequenceRows::Logits;
  const auto piece = [&](int64_t s, int64_t past, int64_t count, Logits logits) {
    return SequenceRows{.tokens = all.subspan(static_cast<std::size_t>(s * 80 + past), static_cast<std::size_t>(count)),
                        .num_past = past,
                        .block_table = decoder.blocks_of(s),
                        .state_slot = static_cast<int32_t>(s),
                        .logits = logits};
  };
  std::vector<StepLogits> steps;
  steps.push_back(decoder.step({{piece(0, 0, 40, Logits::kLast), piece(1, 0, 23, Logits::kAll)}}));
  steps.push_back(decoder.step({{piece(0, 40, 7, Logits::kLast), piece(1, 23, 30, Logits::kLast)}}));
  SequenceRows drafted = piece(0, 47, 4, Logits::kAll);
  drafted.form = DeltaForm::kRecurrent;
  drafted.num_held = kMaxHeld;
  steps.push_back(decoder.step({{drafted}}));
  SequenceRows next = piece(0, 50, 3, Logits::kAll);
  next.form = DeltaForm::kRecurrent;
  next.num_replayed = 2;
  next.num_held = 2;
  SequenceRows plain = piece(1, 53, 1, Logits::kAll);
  plain.form = DeltaForm::kRecurrent;
  steps.push_back(decoder.step({{next, plain}}));
  return steps;
}

}  // namespace ferry::test
