#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/model/architectures/architecture.h"
#include "tests/support/completion.h"
#include "tests/support/golden_files.h"
#include "tests/support/prompt_run.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

// The decoder against Hugging Face transformers: tests/golden/README.md says what the data is.

namespace ferry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::kDemoFolder;
using test::kGoldenFolder;
using test::read_json;

constexpr double kTolerance = 2e-4;  // of the largest magnitude: what fp32 rounding in another order may do

/// Two models have tokens that leave a gated norm with next to nothing to norm. There float32 itself is further off:
/// qwen3_next's logits differ from float64 by 3.8e-4 in transformers, by 2.6e-4 here; qwen3_5's by 2e-4 between the delta
/// rule's two forms.
double tolerance_of(const std::string& model) {
  if (model == "qwen3_next") return 8e-4;
  return model == "qwen3_5" ? 4e-4 : kTolerance;
}
constexpr double kNearTie = 1e-6;  // router logits closer than this may be ranked either way
constexpr double kBf16Deviation =
    1.5;  // x transformers' own distance between bf16 and f32: as far as another bf16 run may be from either
constexpr double kBf16Typical =
    0.5;  // likewise from bf16, for the median token: most tokens are not hit by a near tie of a router
constexpr double kDemoMargin = 1e-3;  // of f32 logits

template <class T>
std::vector<T> read_tensor(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* tensor = file.find(name);
  if (tensor == nullptr) {
    ADD_FAILURE() << file.path() << " has no " << name;
    return {};
  }
  std::vector<T> values(static_cast<std::size_t>(tensor->bytes) / sizeof(T));
  std::memcpy(values.data(), tensor->data, values.size() * sizeof(T));
  return values;
}

void expect_close(const std::vector<float>& expected, const std::vector<float>& actual, const std::string& what,
                  double tolerance) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max<double>(largest, std::abs(expected[i]));
    const double error = std::abs(static_cast<double>(expected[i]) - actual[i]);
    worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
  }
  EXPECT_LE(worst, tolerance * largest) << what;
}

/// Root of the mean squared difference.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

/// The median over tokens of the distance between rows of logits.
double median_distance(const std::vector<float>& a, const std::vector<float>& b, std::size_t vocab) {
  std::vector<double> distances;
  for (std::size_t i = 0; i < a.size(); i += vocab) {
    const auto row = [&](const std::vector<float>& logits) {
      const auto first = logits.begin() + static_cast<std::ptrdiff_t>(i);
      return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(vocab));
    };
    distances.push_back(distance(row(a), row(b)));
  }
  std::sort(distances.begin(), distances.end());
  return distances[distances.size() / 2];
}

struct Choice {
  int32_t expert;
  float weight;
};

std::vector<Choice> choices_of_token(const std::vector<int32_t>& ids, const std::vector<float>& weights, std::size_t token,
                                     std::size_t top_k) {
  std::vector<Choice> choices;
  for (std::size_t k = token * top_k; k < (token + 1) * top_k; ++k) choices.push_back({ids[k], weights[k]});
  std::sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) { return a.expert < b.expert; });
  return choices;
}

/// Experts as sets and their weights. Two sets may differ in one expert if the router can hardly tell the two apart: the
/// difference of logits is the logarithm of the ratio of the weights. Returns the number of such tokens.
int compare_routing(const std::vector<Choice>& expected, const std::vector<Choice>& actual, const std::string& what,
                    double tolerance) {
  std::vector<Choice> missing, extra;
  const auto is_in = [](const std::vector<Choice>& list, int32_t expert) {
    return std::any_of(list.begin(), list.end(), [&](const Choice& c) { return c.expert == expert; });
  };
  for (const Choice& c : expected) {
    if (!is_in(actual, c.expert)) missing.push_back(c);
  }
  for (const Choice& c : actual) {
    if (!is_in(expected, c.expert)) extra.push_back(c);
  }
  if (missing.empty()) {
    for (std::size_t k = 0; k < expected.size(); ++k) {
      EXPECT_EQ(expected[k].expert, actual[k].expert) << what;
      EXPECT_NEAR(expected[k].weight, actual[k].weight, tolerance) << what << ", expert " << expected[k].expert;
    }
    return 0;
  }
  EXPECT_EQ(missing.size(), 1U) << what;
  EXPECT_LE(std::abs(std::log(missing[0].weight / extra[0].weight)), kNearTie)
      << what << ": expert " << extra[0].expert << " instead of " << missing[0].expert;
  return 1;
}

void compare_all_routing(const SafetensorsFile& golden, const std::string& prompt, const test::PromptTrace& trace,
                         const ModelConfig& config, double tolerance) {
  const auto top_k = static_cast<std::size_t>(config.moe.top_k);
  int near_ties = 0;
  for (const auto& [layer, ids] : trace.topk_ids) {
    const std::string name = prompt + "layers." + std::to_string(layer) + "." + config.architecture->names.moe.router + ".";
    const auto expected_ids = read_tensor<int32_t>(golden, name + "topk_ids");
    const auto expected_weights = read_tensor<float>(golden, name + "topk_weights");
    ASSERT_EQ(expected_ids.size(), ids.size()) << name;
    const std::vector<float>& weights = trace.values.at("layers." + std::to_string(layer) + ".topk_weights");
    for (std::size_t token = 0; token < ids.size() / top_k; ++token) {
      near_ties +=
          compare_routing(choices_of_token(expected_ids, expected_weights, token, top_k),
                          choices_of_token(ids, weights, token, top_k), name + " token " + std::to_string(token), tolerance);
    }
  }
  if (near_ties > 0) std::printf("%s %d tokens with a near tie are routed the other way\n", prompt.c_str(), near_ties);
}

/// Everything that golden.safetensors holds about a prompt's text decoder.
void compare_trace(const SafetensorsFile& golden, const std::string& prompt, const test::PromptTrace& trace,
                   const ModelConfig& config, double tolerance) {
  const auto compare = [&](const std::string& name) {
    expect_close(read_tensor<float>(golden, prompt + name), trace.values.at(name), prompt + name, tolerance);
  };
  for (int64_t k = 0; k <= config.num_layers(); ++k) {
    compare("hidden." + std::to_string(k));
  }
  for (int64_t l = 0; l < config.num_layers(); ++l) {
    if (config.layers[static_cast<std::size_t>(l)].mixer != Mixer::kGatedDelta) continue;
    compare("recurrent_state." + std::to_string(l));
  }
  const int64_t num_routed = config.is_dense() ? 0 : config.num_layers_of(Ffn::kMixtureOfExperts);
  ASSERT_EQ(trace.topk_ids.size(), static_cast<std::size_t>(num_routed));
  compare_all_routing(golden, prompt, trace, config, tolerance);
  compare("logits");
}

EngineOptions engine_options(const fs::path& model) {
  EngineOptions options;
  options.model = model;
  options.threads = 2;
  options.memory_bytes = int64_t{64} << 20;
  options.max_seqs = 8;
  return options;
}

/// How the products and the ops are computed.
struct Compute {
  std::string kernels, matmul;
};

std::vector<Compute> computes() {
  std::vector<Compute> list;
  const bool has_onednn = make_onednn_matmul(DType::kF32) != nullptr;
  for (const OpTable* table : available_op_tables()) {
    const std::string name = table->name;
    list.push_back({name, "ref"});
    if (name != "ref") list.push_back({name, name});
    if (has_onednn) list.push_back({name, "onednn"});
  }
  return list;
}

struct GoldenCase {
  std::string model;
  Compute compute;
  int64_t prefill_chunk;
};

/// Qwen3.5-MoE every way to compute with a prompt in one piece and in pieces of 64, 7 and 1; the reference, which is slow and
/// the same in all pieces, with pieces of 7 only where it multiplies for vector ops. Its relatives share those ways: each in
/// the fastest with the same pieces, and in the reference.
std::vector<GoldenCase> golden_cases() {
  std::vector<GoldenCase> cases;
  for (const char* model : {"qwen3_5_moe", "qwen3_5_moe_wide"}) {
    for (const Compute& compute : computes()) {
      for (const int64_t chunk : {512, 64, 7, 1}) {
        if (compute.matmul == "ref" && compute.kernels != "ref" && chunk != 7) continue;
        cases.push_back({model, compute, chunk});
      }
    }
  }
  for (const char* model : {"qwen3_5", "qwen3_next", "qwen3_moe", "lfm2", "lfm2_moe"}) {
    for (const int64_t chunk : {512, 64, 7, 1}) cases.push_back({model, {"auto", "auto"}, chunk});
    cases.push_back({model, {"ref", "ref"}, 7});
  }
  return cases;
}

std::string case_name(const testing::TestParamInfo<GoldenCase>& info) {
  const GoldenCase& c = info.param;
  return c.model + "_" + c.compute.kernels + "_" + c.compute.matmul + "_chunk" + std::to_string(c.prefill_chunk);
}

class Golden : public testing::TestWithParam<GoldenCase> {};

TEST_P(Golden, EveryIntermediateAndTokenInFloat32) {
  const fs::path dir = kGoldenFolder / GetParam().model;
  EngineOptions options = engine_options(dir);
  options.kernels = GetParam().compute.kernels;
  options.matmul = GetParam().compute.matmul;
  options.prefill_chunk = GetParam().prefill_chunk;
  Cluster cluster(options);
  Engine engine(options, cluster, Engine::LogitRows::kAll);
  const SafetensorsFile golden(dir / "golden.safetensors");
  const json prompts = read_json(dir / "golden.json").at("prompts");
  ASSERT_EQ(prompts.size(), 3U);
  const double tolerance = tolerance_of(GetParam().model);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto ids = prompts[i].at("ids").get<std::vector<TokenId>>();
    compare_trace(golden, "prompt" + std::to_string(i) + ".", test::trace_prompt(engine, ids), engine.config(), tolerance);
    requests.push_back(test::make_request(ids, 24));
    requests.back().sampling.ignore_eos = true;
  }
  Coordinator coordinator(engine);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(test::complete(coordinator, requests[i])->tokens, prompts[i].at("greedy").get<std::vector<TokenId>>())
        << "prompt " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Golden, testing::ValuesIn(golden_cases()), case_name);

/// Requests in one batch, greedy.
class GoldenFamily : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, GoldenFamily, testing::Values("qwen3_5", "qwen3_next", "qwen3_moe", "lfm2", "lfm2_moe"),
                         [](const auto& golden) { return std::string(golden.param); });

TEST_P(GoldenFamily, ABatchGetsTheTokensOfTransformers) {
  const fs::path dir = kGoldenFolder / GetParam();
  const EngineOptions options = engine_options(dir);
  Cluster cluster(options);
  Engine engine(options, cluster);
  Coordinator coordinator(engine);
  const json prompts = read_json(dir / "golden.json").at("prompts");
  std::vector<Request> requests;
  for (std::size_t i = 0; i < 8; ++i) {
    requests.push_back(test::make_request(prompts[i % 3].at("ids").get<std::vector<TokenId>>(), 24));
    requests.back().sampling.ignore_eos = true;
  }
  const auto together = test::complete_all(coordinator, requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(together[i]->tokens, prompts[i % 3].at("greedy").get<std::vector<TokenId>>()) << "request " << i;
}

/// Another bfloat16 run may round elsewhere: it must be about as close to transformers' two as these are to each other.
TEST_P(GoldenFamily, Bfloat16IsAsCloseToFloat32AsTransformersIs) {
  const fs::path dir = kGoldenFolder / GetParam();
  const test::TempFolder folder;
  test::write_bf16_copy(dir, folder.path());
  EngineOptions options = engine_options(folder.path());
  const SafetensorsFile golden(dir / "golden.safetensors"), golden_bf16(dir / "golden_bf16.safetensors");
  const json prompts = read_json(dir / "golden.json").at("prompts");
  for (const OpTable* table : available_op_tables()) {
    options.kernels = table->name;
    Cluster cluster(options);
    Engine engine(options, cluster, Engine::LogitRows::kAll);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::string prompt = "prompt" + std::to_string(i) + ".";
      const auto ids = prompts[i].at("ids").get<std::vector<TokenId>>();
      const std::vector<float> logits = test::trace_prompt(engine, ids).values.at("logits");
      const auto f32 = read_tensor<float>(golden, prompt + "logits");
      const auto bf16 = read_tensor<float>(golden_bf16, prompt + "logits_bf16");
      const double own_noise = distance(bf16, f32);
      EXPECT_LE(distance(logits, f32), kBf16Deviation * own_noise) << table->name << " " << prompt;
      EXPECT_LE(distance(logits, bf16), kBf16Deviation * own_noise) << table->name << " " << prompt;
    }
  }
}

/// Checkpoints that are quantised already, against transformers on the weights that they stand for: widened, and in their own
/// codes where rows keep their values (those of GPTQ take rows in codes).
struct FormatCase {
  const char* model;
  const char* quantize;
};
class GoldenFormat : public testing::TestWithParam<FormatCase> {};
INSTANTIATE_TEST_SUITE_P(All, GoldenFormat,
                         testing::Values(FormatCase{"fp8_qwen3_5", "none"}, FormatCase{"fp8_qwen3_5", "native"},
                                         FormatCase{"fp8_qwen3_5_moe", "none"}, FormatCase{"fp8_qwen3_5_moe", "native"},
                                         FormatCase{"gptq_qwen3_5_moe", "none"}),
                         [](const auto& c) { return std::string(c.param.model) + "_" + c.param.quantize; });

/// The experts that tokens go to, as sets; the golden data has no weights.
void compare_experts(const SafetensorsFile& golden, const std::string& prompt, const test::PromptTrace& trace,
                     const ModelConfig& config) {
  for (const auto& [layer, ids] : trace.topk_ids) {
    const std::string name = prompt + "layers." + std::to_string(layer) + ".mlp.gate.topk_ids";
    auto expected = read_tensor<int32_t>(golden, name);
    auto actual = ids;
    ASSERT_EQ(expected.size(), actual.size()) << name;
    for (auto* list : {&expected, &actual}) {
      for (auto token = list->begin(); token != list->end(); token += config.moe.top_k)
        std::sort(token, token + config.moe.top_k);
    }
    EXPECT_EQ(expected, actual) << name;
  }
}

TEST_P(GoldenFormat, LogitsAndTokensInFloat32) {
  const fs::path dir = kGoldenFolder / GetParam().model;
  EngineOptions options = engine_options(dir);
  options.quantization = parse_quantization(GetParam().quantize);
  options.dtype = DType::kF32;
  Cluster cluster(options);
  Engine engine(options, cluster, Engine::LogitRows::kAll);
  const SafetensorsFile golden(dir / "golden.safetensors");
  const json prompts = read_json(dir / "golden.json").at("prompts");
  ASSERT_FALSE(prompts.empty());
  std::vector<Request> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string prompt = "prompt" + std::to_string(i) + ".";
    const auto ids = prompts[i].at("ids").get<std::vector<TokenId>>();
    const test::PromptTrace trace = test::trace_prompt(engine, ids);
    expect_close(read_tensor<float>(golden, prompt + "logits"), trace.values.at("logits"), prompt + "logits", kTolerance);
    if (i == 1) compare_experts(golden, prompt, trace, engine.config());
    requests.push_back(test::make_request(ids, static_cast<int32_t>(prompts[i].at("greedy").size())));
    requests.back().sampling.ignore_eos = true;
  }
  Coordinator coordinator(engine);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(test::complete(coordinator, requests[i])->tokens, prompts[i].at("greedy").get<std::vector<TokenId>>())
        << "prompt " << i;
  }
}

class GoldenModel : public testing::TestWithParam<const char*> {
 protected:
  const fs::path dir_ = kGoldenFolder / GetParam();
};
INSTANTIATE_TEST_SUITE_P(All, GoldenModel, testing::Values("qwen3_5_moe", "qwen3_5_moe_wide"),
                         [](const auto& golden) { return std::string(golden.param); });

TEST_P(GoldenModel, EightRequestsTogetherGetTheTokensTheyGetAlone) {
  const EngineOptions options = engine_options(dir_);
  Cluster cluster(options);
  Engine engine(options, cluster);
  Coordinator coordinator(engine);
  const json prompts = read_json(dir_ / "golden.json").at("prompts");
  std::vector<Request> requests;
  for (std::size_t i = 0; i < 8; ++i) {
    auto ids = prompts[i % 3].at("ids").get<std::vector<TokenId>>();
    if (i >= 3) ids.resize(ids.size() * (i - 2) / 7 + 1);
    requests.push_back(test::make_request(ids, static_cast<int32_t>(24 - i)));
    requests.back().sampling.ignore_eos = true;
  }
  std::vector<std::vector<TokenId>> alone;
  for (const Request& request : requests) alone.push_back(test::complete(coordinator, request)->tokens);
  const auto together = test::complete_all(coordinator, requests);
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[i]->tokens, alone[i]) << "request " << i;
  for (std::size_t i = 0; i < 3; ++i) {
    auto golden = prompts[i].at("greedy").get<std::vector<TokenId>>();
    golden.resize(24 - i);
    EXPECT_EQ(together[i]->tokens, golden) << "prompt " << i;
  }
}

/// Equal up to the first place where the reference's two best tokens are closer than `margin`.
void expect_tokens_within_margin(const std::vector<TokenId>& expected, const std::vector<double>& margins,
                                 const std::vector<TokenId>& actual, double margin, const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  const auto differs =
      static_cast<std::size_t>(std::mismatch(expected.begin(), expected.end(), actual.begin()).first - expected.begin());
  if (differs == expected.size()) return;
  EXPECT_LE(margins[differs], margin) << what << ": token " << differs << " is " << actual[differs] << " instead of "
                                      << expected[differs];
}

TEST_P(GoldenModel, Bfloat16IsAsCloseToFloat32AsTransformersIs) {
  const test::TempFolder folder;
  test::write_bf16_copy(dir_, folder.path());
  EngineOptions options = engine_options(folder.path());
  const SafetensorsFile golden(dir_ / "golden.safetensors"), golden_bf16(dir_ / "golden_bf16.safetensors");
  const json prompts = read_json(dir_ / "golden.json").at("prompts");
  const json greedy_bf16 = read_json(dir_ / "golden_bf16.json");
  for (const OpTable* table : available_op_tables()) {
    options.kernels = table->name;
    Cluster cluster(options);
    Engine engine(options, cluster, Engine::LogitRows::kAll);
    ASSERT_EQ(engine.dtype(), DType::kBF16);
    std::vector<std::vector<float>> logits;
    for (const json& prompt : prompts)
      logits.push_back(test::trace_prompt(engine, prompt.at("ids").get<std::vector<TokenId>>()).values.at("logits"));
    Coordinator coordinator(engine);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::string what = std::string(table->name) + " prompt " + std::to_string(i);
      const auto f32 = read_tensor<float>(golden, "prompt" + std::to_string(i) + ".logits");
      const auto bf16 = read_tensor<float>(golden_bf16, "prompt" + std::to_string(i) + ".logits_bf16");
      const double own_noise = distance(bf16, f32);
      EXPECT_LE(distance(logits[i], f32), kBf16Deviation * own_noise) << what;
      EXPECT_LE(distance(logits[i], bf16), kBf16Deviation * own_noise) << what;
      const auto vocab = static_cast<std::size_t>(engine.config().vocab_size);
      EXPECT_LE(median_distance(logits[i], bf16, vocab), kBf16Typical * median_distance(bf16, f32, vocab)) << what;
      Request request = test::make_request(prompts[i].at("ids").get<std::vector<TokenId>>(), 24);
      request.sampling.ignore_eos = true;
      // A lead that the noise of two logits may turn around: one deviation of their difference.
      expect_tokens_within_margin(greedy_bf16[i].at("greedy").get<std::vector<TokenId>>(),
                                  greedy_bf16[i].at("greedy_margin").get<std::vector<double>>(),
                                  test::complete(coordinator, request)->tokens, std::sqrt(2.0) * own_noise, what);
    }
  }
}

/// The demo checkpoint's continuations. `margin`: below it two tokens may change places.
void expect_demo_continuations(DType dtype, const char* kind, double margin) {
  EngineOptions options = engine_options(kDemoFolder);
  options.dtype = dtype;
  Cluster cluster(options);
  Engine engine(options, cluster);
  Coordinator coordinator(engine);
  int compared = 0;
  const json goldens = read_json(kDemoFolder / "golden.json");
  for (const json& golden : goldens.at("generation")) {
    if (golden.at("kind") != kind) continue;
    ++compared;
    const auto ids = golden.at("ids").get<std::vector<TokenId>>();
    const auto greedy = golden.at("greedy").get<std::vector<TokenId>>();
    const std::string prompt = golden.at("prompt").get<std::string>();
    EXPECT_EQ(engine.tokenizer()->encode(prompt), ids);
    const auto completion = test::complete(coordinator, test::make_request(ids, static_cast<int32_t>(greedy.size())));
    expect_tokens_within_margin(greedy, golden.at("margin").get<std::vector<double>>(), completion->tokens, margin, prompt);
    if (completion->tokens == greedy) {
      EXPECT_EQ(completion->text, golden.at("text").get<std::string>());
    }
  }
  EXPECT_EQ(compared, 5);
}

TEST(GoldenDemo, AnswersWordForWordInBfloat16) { expect_demo_continuations(DType::kBF16, "chat", 0.0); }
TEST(GoldenDemo, AnswersWordForWordInFloat32) { expect_demo_continuations(DType::kF32, "chat", 0.0); }
TEST(GoldenDemo, ContinuesTextWordForWordInFloat32) { expect_demo_continuations(DType::kF32, "text", kDemoMargin); }

}  // namespace
}  // namespace ferry
