#include "runtime/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>

#include "runtime/checkpoint/checkpoint_packer.h"
#include "tests/support/expect_error.h"
#include "tests/support/prompt_run.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace ferry {
namespace {

using test::EngineDriver;
using test::expect_error;
using test::Piece;
using test::TinyModel;

/// A written checkpoint and options that suit it.
class EngineTest : public testing::Test {
 protected:
  EngineTest() {
    options_.model = dir_.path();
    options_.threads = 2;
    options_.memory_bytes = int64_t{64} << 20;
    options_.max_seqs = 5;
  }
  void write(const TinyModel& model) { model.write(dir_.path()); }
  /// Loading must fail with a line that holds every string of `parts`.
  void expect_refused(const std::vector<std::string>& parts) {
    Cluster cluster(options_);
    expect_error([&] { Engine engine(options_, cluster); }, ErrorCode::kInvalidArgument, parts);
  }

  test::TempFolder dir_;
  EngineOptions options_;
};

std::vector<TokenId> random_tokens(std::size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 97);
  return tokens;
}

TEST_F(EngineTest, ModelInfoSaysWhatRuns) {
  write(TinyModel());
  options_.max_context = 200;
  Cluster cluster(options_);
  const Engine engine(options_, cluster);
  const ModelInfo& info = engine.model_info();
  EXPECT_EQ(info.name, dir_.path().filename().string());
  EXPECT_EQ(info.architecture, "Qwen3_5MoeForConditionalGeneration");
  EXPECT_EQ(info.dtype, DType::kBF16);
  EXPECT_EQ(info.kv_cache_dtype, DType::kBF16);
  EXPECT_EQ(info.vocab_size, 97);
  EXPECT_EQ(info.context_length, 200);
  EXPECT_EQ(info.num_layers, 3);
  EXPECT_EQ(info.hidden_dim, 72);
  EXPECT_EQ(info.num_experts, 11);
  EXPECT_EQ(info.experts_per_token, 3);
  EXPECT_EQ(info.num_expert_workers, 0);
  EXPECT_EQ(info.transport, "local");
  EXPECT_EQ(info.generation.stop_token_ids, std::vector<TokenId>{1});
  EXPECT_EQ(engine.tokenizer(), nullptr);
  EXPECT_EQ(engine.scheduler_options().max_running, 5);
  EXPECT_EQ(engine.scheduler_options().max_context, 200);
}

TEST_F(EngineTest, ChecksRunBeforeWeightsAreReadAndProgressIsReported) {
  write(TinyModel());
  Cluster cluster(options_);
  LoadProgress progress("", LoadProgress::Form::kLines, [](const std::string&) {});
  LoadProgress::State at_check{.done_bytes = -1};
  const auto check = [&](const Engine& engine) {
    at_check = progress.state();
    EXPECT_EQ(engine.scheduler_options().max_running, 5);
    EXPECT_EQ(engine.loaded_tokenizer().complaint->code(), ErrorCode::kNotFound);
    EXPECT_NO_THROW(require_usable(engine.loaded_tokenizer())) << "a folder without a tokenizer takes token ids";
  };
  const Engine engine(options_, cluster, Engine::LogitRows::kSampled, real_clock(), {.progress = &progress, .check = check});
  EXPECT_EQ(at_check.done_bytes, 0);
  EXPECT_EQ(at_check.total_bytes, 0);
  EXPECT_GT(progress.state().total_bytes, 0);
  EXPECT_EQ(progress.state().done_bytes, progress.state().total_bytes);
  EXPECT_EQ(engine.load_count().bytes, progress.state().total_bytes);
}

TEST_F(EngineTest, FailedCheckEndsTheStart) {
  write(TinyModel());
  std::ofstream(dir_.path() / "tokenizer.json") << "{}";
  Cluster cluster(options_);
  LoadProgress progress("", LoadProgress::Form::kLines, [](const std::string&) {});
  const auto check = [](const Engine& engine) { require_usable(engine.loaded_tokenizer()); };
  expect_error(
      [&] { Engine(options_, cluster, Engine::LogitRows::kSampled, real_clock(), {.progress = &progress, .check = check}); },
      ErrorCode::kInvalidArgument, {"tokenizer files"});
  EXPECT_EQ(progress.state().done_bytes, 0);
}

TEST_F(EngineTest, OptionsThatDoNotFitTheModel) {
  write(TinyModel());
  const EngineOptions good = options_;
  options_.max_context = 1025;
  expect_refused({"--max-context", "1025", "2 to the checkpoint's 1024"});
  options_ = good;
  options_.memory_bytes = 4096;
  expect_refused({"--memory is 4096 bytes", "at least"});
  options_ = good;
  options_.dtype = DType::kF32;
  options_.kv_cache_dtype = DType::kBF16;
  expect_refused({"--kv-cache-dtype is bf16", "allowed: auto or int8 with --dtype f32"});
  options_ = good;
  options_.kernels = "neon";
  expect_refused({"--kernels", "'neon'", "ref"});
  options_ = good;
  options_.matmul = "sse9";
  expect_refused({"--matmul", "'sse9'", "allowed: auto", "ref"});
  options_ = good;
  options_.matmul = "onednn";
  options_.quantization = Quantization{.experts = WeightType{WeightFormat::kInt8, 0}};
  if (make_onednn_matmul(DType::kBF16) != nullptr) expect_refused({"onednn", "--quantize", "allowed"});
}

TEST_F(EngineTest, CheckpointsThatCannotBeLoaded) {
  TinyModel model;
  model.tensors.erase("lm_head.weight");
  write(model);
  expect_refused({"lm_head.weight", "missing"});
  model = TinyModel();
  model.text()["num_experts"] = 12;
  write(model);
  expect_refused({"tensor", "mlp", "[12"});
  model = TinyModel();
  model.tensors.at("model.language_model.layers.1.mlp.experts.down_proj").set(7, std::numeric_limits<float>::quiet_NaN());
  write(model);
  options_.check_weights = true;
  expect_refused({"layers.1.mlp.experts.down_proj", "nan", "must be finite"});
  options_.check_weights = false;
  Cluster cluster(options_);
  Engine engine(options_, cluster);
}

/// The same values in every form of storage compute the same bits; the run's dtype is what --dtype says.
TEST_F(EngineTest, FormsOfStorageGiveTheSameBits) {
  const std::vector<TokenId> tokens = random_tokens(75, 1);
  const auto logits = [&](const test::TinyModelOptions& form, int num_shards, DType dtype) {
    const test::TempFolder dir;
    TinyModel(form).write(dir.path(), num_shards);
    EngineOptions options = options_;
    options.model = dir.path();
    options.dtype = dtype;
    Cluster cluster(options);
    Engine engine(options, cluster, Engine::LogitRows::kAll);
    EXPECT_EQ(engine.dtype(), dtype);
    return EngineDriver(engine).prompt(0, tokens);
  };
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const auto packed = logits({}, 1, dtype);
    EXPECT_EQ(packed.size(), 75U);
    EXPECT_EQ(packed, logits({.packed_experts = false}, 3, dtype));
    EXPECT_EQ(packed, logits({.prefix = "model."}, 1, dtype));
  }
}

TEST_F(EngineTest, ARehearsalOnADeviceChangesNothing) {
  if (std::ranges::none_of(vulkan::list_devices().devices, [](const auto& device) { return device.refusal.empty(); }))
    GTEST_SKIP() << "no Vulkan device";
  write(TinyModel());
  options_.device.kind = DeviceChoice::Kind::kVulkan;
  options_.prefill_chunk = 64;
  std::vector<std::vector<std::vector<float>>> logits;
  for (const bool is_rehearsed : {false, true}) {
    Cluster cluster(options_);
    Engine engine(options_, cluster, Engine::LogitRows::kAll);
    if (is_rehearsed) engine.rehearse();
    logits.push_back(EngineDriver(engine).prompt(0, random_tokens(75, 1)));
  }
  EXPECT_EQ(logits[0], logits[1]);
}

/// A folder of packed weights computes the bits that quantising at every start gives, also where panels are no use, and can be
/// loaded as nothing else.
TEST_F(EngineTest, PackedFoldersGiveTheSameBitsAsQuantisingAtLoad) {
  if (cpu_matmul_names().empty()) GTEST_SKIP() << "no own kernels for this processor";
  const std::vector<TokenId> tokens = random_tokens(75, 1);
  const auto logits = [&](const EngineOptions& options) {
    Cluster cluster(options);
    Engine engine(options, cluster, Engine::LogitRows::kAll);
    return EngineDriver(engine).prompt(0, tokens);
  };
  write(TinyModel({.hidden = 96, .v_dim = 24, .expert_dim = 32, .shared_dim = 64}));
  for (const char* text : {"w8a8", "w4a8", "experts=w4a8,lm_head=w8a8"}) {
    const test::TempFolder packed;
    ThreadPool pool(2);
    const Quantization quantization = parse_quantization(text);
    pack_checkpoint(dir_.path(), packed.path(), quantized_matrices(dir_.path(), quantization), pool,
                    {.dtype = DType::kBF16, .quantization = quantization});
    EngineOptions at_load = options_, mapped = options_;
    at_load.quantization = parse_quantization(text);
    mapped.model = packed.path();
    const auto expected = logits(at_load);
    EXPECT_NE(expected, logits(options_)) << text << " changes nothing";
    EXPECT_EQ(logits(mapped), expected) << text;
    mapped.quantization = at_load.quantization;
    EXPECT_EQ(logits(mapped), expected) << text;
    options_.model = packed.path();
    options_.quantization = Quantization{};
    expect_refused({"--quantize", "'none'", std::string("'") + text + "'"});
    options_.quantization = std::nullopt;
    at_load.matmul = mapped.matmul = "ref";  // has another layout: takes the codes out of the panels
    EXPECT_EQ(logits(mapped), logits(at_load)) << text;
    options_.matmul = "onednn";
    if (make_onednn_matmul(DType::kBF16) != nullptr) expect_refused({"--matmul", "onednn", "ferry quantize", "auto"});
    options_.matmul = "auto";
    options_.model = dir_.path();
  }
}

/// What a step computes for a sequence must not depend on the sequences beside it: every mixture of prompts and decode rows
/// gives the logits that each sequence gets alone, bit for bit.
void expect_mixed_steps_equal_steps_alone(Engine& engine) {
  const std::vector<TokenId> a = random_tokens(91, 1), b = random_tokens(70, 2), c = random_tokens(64, 3);
  EngineDriver driver(engine);
  const auto alone = [&](int32_t sequence, const std::vector<std::span<const TokenId>>& pieces) {
    std::vector<std::vector<float>> rows;
    driver.reset(sequence);
    for (const std::span<const TokenId> tokens : pieces) {
      const Piece piece{sequence, tokens, tokens.size() == 1 ? DeltaForm::kRecurrent : DeltaForm::kChunk};
      for (auto& row : driver.step({&piece, 1})) rows.push_back(std::move(row));
    }
    return rows;
  };
  const auto part = [](const std::vector<TokenId>& tokens, std::size_t first, std::size_t count) {
    return std::span(tokens).subspan(first, count);
  };
  // a: 64 + 25 tokens, then two decode rows. b: 67 tokens in two pieces, three decode rows. c: the whole prompt.
  const auto alone_a = alone(0, {part(a, 0, 64), part(a, 64, 25), part(a, 89, 1), part(a, 90, 1)});
  const auto alone_b = alone(1, {part(b, 0, 64), part(b, 64, 3), part(b, 67, 1), part(b, 68, 1), part(b, 69, 1)});
  const auto alone_c = alone(2, {part(c, 0, 64)});

  // The same in other slots, with other neighbours.
  std::vector<std::vector<float>> mixed_a, mixed_b, mixed_c;
  const auto run = [&](const std::vector<Piece>& pieces) {
    const auto rows = driver.step(pieces);
    std::size_t next = 0;
    for (const Piece& piece : pieces) {
      auto& to = piece.sequence == 3 ? mixed_a : piece.sequence == 1 ? mixed_b : mixed_c;
      for (std::size_t i = 0; i < piece.tokens.size(); ++i) to.push_back(rows[next++]);
    }
    EXPECT_EQ(next, rows.size());
  };
  for (const int32_t sequence : {1, 3, 4}) driver.reset(sequence);
  run({{3, part(a, 0, 64)}, {1, part(b, 0, 64)}});
  run({{1, part(b, 64, 3)}, {3, part(a, 64, 25)}});
  constexpr DeltaForm kRecurrent = DeltaForm::kRecurrent;
  run({{1, part(b, 67, 1), kRecurrent}, {3, part(a, 89, 1), kRecurrent}, {4, part(c, 0, 64)}});
  run({{3, part(a, 90, 1), kRecurrent}, {1, part(b, 68, 1), kRecurrent}});
  run({{1, part(b, 69, 1), kRecurrent}});
  EXPECT_EQ(mixed_a, alone_a);
  EXPECT_EQ(mixed_b, alone_b);
  EXPECT_EQ(mixed_c, alone_c);
}

/// Rows behind drafts, right and wrong, give the logits of plain decoding, bit for bit; so do the rows after them.
void expect_verified_rows_equal_decoded_ones(Engine& engine) {
  const std::vector<TokenId> prompt = random_tokens(70, 4), tokens = random_tokens(9, 5), wrong = random_tokens(9, 6);
  EngineDriver driver(engine);
  driver.reset(0);
  driver.prompt(0, prompt);
  std::vector<std::vector<float>> plain;
  for (const TokenId& token : tokens) {
    const Piece piece{0, {&token, 1}, DeltaForm::kRecurrent};
    plain.push_back(driver.step({&piece, 1}).front());
  }
  for (const int32_t sequence : {1, 2}) {
    driver.reset(sequence);
    driver.prompt(sequence, prompt);
  }
  // One token and four drafts, two right; one token and three drafts, none right; two tokens that are certain, one draft;
  // the last token.
  struct Step {
    std::size_t first, num_right, num_wrong;  // the rows: tokens from `first`, then wrong ones
    int64_t num_replayed, num_held;
  };
  for (const Step& step : {Step{0, 3, 2, 0, 4}, {3, 1, 3, 2, 3}, {4, 3, 0, 0, 1}, {7, 1, 0, 1, 0}, {8, 1, 1, 0, 1}}) {
    std::vector<TokenId> rows(tokens.begin() + static_cast<std::ptrdiff_t>(step.first),
                              tokens.begin() + static_cast<std::ptrdiff_t>(step.first + step.num_right));
    rows.insert(rows.end(), wrong.begin(), wrong.begin() + static_cast<std::ptrdiff_t>(step.num_wrong));
    std::vector<Piece> pieces;
    for (const int32_t sequence : {2, 1})
      pieces.push_back({sequence, rows, DeltaForm::kRecurrent, step.num_replayed, step.num_held});
    const auto logits = driver.step(pieces);
    for (std::size_t i = 0; i < step.num_right; ++i) {
      EXPECT_EQ(logits[i], plain[step.first + i]) << "row " << i << " of the step from token " << step.first;
      EXPECT_EQ(logits[rows.size() + i], plain[step.first + i]) << "beside another";
    }
  }
}

/// Whatever can multiply here.
std::vector<std::string> matmul_names() {
  std::vector<std::string> names = cpu_matmul_names();
  names.insert(names.end(), {"auto", "ref"});
  if (make_onednn_matmul(DType::kBF16) != nullptr && make_onednn_matmul(DType::kF32) != nullptr) names.push_back("onednn");
  return names;
}

TEST_F(EngineTest, MixedStepsGiveTheBitsOfStepsAlone) {
  write(TinyModel());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const OpTable* table : available_op_tables()) {
      for (const std::string& matmul : matmul_names()) {
        const bool is_ref = std::string(table->name) == "ref";
        if (is_ref != (matmul == "ref")) continue;
        options_.dtype = dtype;
        options_.kernels = table->name;
        options_.matmul = matmul;
        options_.speculation = {Speculation::Source::kNgram, 4};
        for (const std::optional<DType> kv_dtype : {std::optional<DType>(), std::optional(DType::kI8)}) {
          options_.kv_cache_dtype = kv_dtype;
          Cluster cluster(options_);
          Engine engine(options_, cluster, Engine::LogitRows::kAll);
          SCOPED_TRACE(std::string(table->name) + " " + engine.matmul().name() + " " + dtype_name(dtype) + " " +
                       kv_dtype_name(engine.model_info().kv_cache_dtype));
          expect_mixed_steps_equal_steps_alone(engine);
          expect_verified_rows_equal_decoded_ones(engine);
        }
      }
    }
  }
}

TEST_F(EngineTest, CodesOfKeysAndValuesTakeHalfTheMemory) {
  write(TinyModel());
  options_.memory_bytes = int64_t{128} << 10;
  options_.max_seqs = 1;
  std::vector<int64_t> num_blocks;
  std::vector<std::vector<std::vector<float>>> logits;
  for (const std::optional<DType> kv_dtype : {std::optional<DType>(), std::optional(DType::kI8)}) {
    options_.kv_cache_dtype = kv_dtype;
    Cluster cluster(options_);
    Engine engine(options_, cluster, Engine::LogitRows::kAll);
    EXPECT_EQ(engine.model_info().kv_cache_dtype, kv_dtype.value_or(DType::kBF16));
    num_blocks.push_back(engine.scheduler_options().num_blocks);
    logits.push_back(EngineDriver(engine).prompt(0, random_tokens(30, 5)));
  }
  EXPECT_GT(static_cast<double>(num_blocks[1]), 1.7 * static_cast<double>(num_blocks[0]));
  EXPECT_NE(logits[0], logits[1]);
  for (std::size_t row = 0; row < logits[0].size(); ++row) {
    const float largest = *std::ranges::max_element(logits[0][row]);
    for (std::size_t i = 0; i < logits[0][row].size(); ++i) EXPECT_NEAR(logits[0][row][i], logits[1][row][i], 0.1F * largest);
  }
}

TEST_F(EngineTest, NumberOfThreadsChangesNothing) {
  write(TinyModel());
  const std::vector<TokenId> tokens = random_tokens(130, 5);
  std::vector<std::vector<float>> expected;
  for (const int threads : {1, 2, 5}) {
    options_.threads = threads;
    Cluster cluster(options_);
    Engine engine(options_, cluster, Engine::LogitRows::kAll);
    const auto logits = EngineDriver(engine).prompt(0, tokens);
    if (expected.empty()) expected = logits;
    EXPECT_EQ(logits, expected) << threads << " threads";
  }
}

TEST_F(EngineTest, ReusedSlotStartsFromNothing) {
  write(TinyModel());
  Cluster cluster(options_);
  Engine engine(options_, cluster, Engine::LogitRows::kAll);
  EngineDriver driver(engine);
  const auto first = driver.prompt(2, random_tokens(40, 7));
  driver.prompt(1, random_tokens(80, 8));
  driver.reset(2);
  driver.prompt(2, random_tokens(90, 9));
  driver.reset(2);
  EXPECT_EQ(driver.prompt(2, random_tokens(40, 7)), first);
}

TEST_F(EngineTest, LayersOfOneKindOnly) {
  for (const char* kind : {"linear_attention", "full_attention"}) {
    TinyModel model({.layers = {kind, kind}});
    write(model);
    Cluster cluster(options_);
    Engine engine(options_, cluster, Engine::LogitRows::kAll);
    for (const auto& row : EngineDriver(engine).prompt(0, random_tokens(70, 3))) {
      for (const float logit : row) ASSERT_TRUE(std::isfinite(logit)) << kind;
    }
  }
}

}  // namespace
}  // namespace ferry
