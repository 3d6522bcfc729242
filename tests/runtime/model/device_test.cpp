#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <random>
#include <string>

#include "kernels/host_rows.h"
#include "moe/local_token_dispatcher.h"
#include "runtime/model/cache_shapes.h"
#include "runtime/model/mtp.h"
#include "runtime/model/weights_loader.h"
#include "tests/support/apart_device.h"
#include "tests/support/source_folder.h"

// The decoder on a device that the host cannot touch and that runs only what was waited for computes the host's bits.

namespace ferry {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxTokens = 96, kMaxSequences = 2, kBlockTokens = 16, kNumBlocks = 12, kMaxHeld = 3;

struct ModelCase {
  std::string model;
  DType dtype;
  std::string quantize;
};

/// A golden model, loaded for one stream.
class Decoder {
 public:
  Decoder(const ModelCase& c, Stream& stream)
      : stream_(stream),
        dir_(test::source_folder() / "tests" / "golden" / c.model),
        config_(load_config(dir_)),
        checkpoint_(Checkpoint::open(dir_)),
        options_{.dtype = c.dtype, .weights = {.quantization = parse_quantization(c.quantize)}} {
    config_.mtp = lacks_mtp(checkpoint_, config_, options_.weights).empty();
    weights_.emplace(load_trunk(checkpoint_, config_, stream.backend(), stream.pool(), options_));
    const Rank here{0};
    bank_.emplace(load_experts(checkpoint_, config_, ExpertMap::contiguous(config_.moe.num_experts, {&here, 1}), 0,
                               stream.backend().matmul(), stream.pool(), options_));
    dispatcher_.emplace(*bank_, stream,
                        LocalTokenDispatcher::Options{.max_tokens = kMaxTokens, .top_k = config_.moe.top_k, .dtype = c.dtype});
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

  /// Bytes of the step's logits, and of those of the MTP layer.
  std::string step(std::span<const SequenceRows> pieces) {
    StepRows rows;
    std::vector<int32_t> all;
    for (const SequenceRows& piece : pieces) rows.add(piece);
    const StepInput input = rows.input(64);
    std::string bytes = read(trunk_->forward(input, *kv_cache_, *state_, *dispatcher_));
    if (!mtp_) return bytes;
    all.resize(input.token_ids.size());
    std::iota(all.begin(), all.end(), 0);
    const MatrixView hidden = mtp_hidden_.top(std::ssize(all));
    mtp_->copy_hidden(hidden);
    return bytes + read(mtp_->run({.step = input, .hidden = hidden, .rows = all}, *kv_cache_, *state_, *dispatcher_));
  }

  int64_t vocab_size() const { return config_.vocab_size; }
  const int32_t* blocks_of(int64_t sequence) const { return blocks_.data() + sequence * kNumBlocks / kMaxSequences; }

 private:
  std::string read(ConstMatrixView logits) {
    logits_.fetch(logits);
    const ConstMatrixView rows = logits_.look();
    return {reinterpret_cast<const char*>(rows.row_bytes(0)),
            static_cast<std::size_t>(rows.rows * rows.cols * dtype_bytes(rows.dtype))};
  }

  Stream& stream_;
  fs::path dir_;
  ModelConfig config_;
  Checkpoint checkpoint_;
  LoadOptions options_;
  std::optional<TrunkWeights> weights_;
  std::optional<ExpertBank> bank_;
  std::optional<LocalTokenDispatcher> dispatcher_;
  std::optional<KvCache> kv_cache_;
  std::optional<RecurrentState> state_;
  std::optional<Trunk> trunk_;
  std::optional<MtpLayer> mtp_;
  HostRows logits_;
  Matrix mtp_hidden_;
  std::array<int32_t, kNumBlocks> blocks_{};
};

/// Logits of two prompts side by side, in two pieces, then of decode rows with drafts that are held, replayed and forgotten.
std::vector<std::string> run_steps(const ModelCase& c, Stream& stream) {
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
  std::vector<std::string> steps;
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

TEST(Device, ComputesTheBitsOfTheHost) {
  for (const ModelCase& c : {ModelCase{"qwen3_5_moe", DType::kF32, "none"}, ModelCase{"qwen3_5_moe", DType::kBF16, "none"},
                             ModelCase{"qwen3_5_moe_wide", DType::kBF16, "w8a8"}, ModelCase{"qwen3_5", DType::kF32, "none"},
                             ModelCase{"fp8_qwen3_5_moe", DType::kBF16, "none"}, ModelCase{"qwen3_next", DType::kF32, "none"},
                             ModelCase{"lfm2_moe", DType::kBF16, "none"}, ModelCase{"lfm2", DType::kF32, "none"}}) {
    ThreadPool pool(2);
    const Backend host = select_backend("auto", "auto", c.dtype);
    Stream host_stream(host, pool);
    test::ApartDevice device(c.dtype);
    test::ApartStream device_stream(device, pool);
    const std::vector<std::string> expected = run_steps(c, host_stream), actual = run_steps(c, device_stream);
    const std::string what = c.model + " " + dtype_name(c.dtype) + " " + c.quantize;
    ASSERT_EQ(expected.size(), actual.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(expected[i] == actual[i]) << what << ", step " << i;
    EXPECT_GT(device_stream.num_recorded(), 4 * 20) << what;
  }
}

TEST(DeviceDeathTest, TheHostMayNotTouchItsMemory) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  test::ApartDevice device(DType::kF32);
  Matrix matrix(device.memory(), DType::kF32, 2, 3);
  const Array<float> array(device.memory(), 4);
  EXPECT_DEATH(matrix.view().row<float>(0), "may not touch a device's memory");
  EXPECT_DEATH(matrix.top(1).cols_from(1, 1).row_bytes(0), "may not touch a device's memory");
  EXPECT_DEATH(array.data().host(), "may not touch a device's memory");
  EXPECT_DEATH(*matrix.view().row_address(0) = std::byte{1}, "");
}

}  // namespace
}  // namespace ferry
