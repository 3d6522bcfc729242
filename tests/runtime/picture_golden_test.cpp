#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/engine.h"
#include "runtime/text/chat_template.h"
#include "tests/support/golden_files.h"

// Prompts with pictures and videos against transformers, from the files to the logits, the tokens and the drafts:
// tests/golden/README.md says what the data is.

namespace ferry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::kDemoFolder;
using test::kGoldenFolder;
using test::read_json;
using Tokens = std::vector<TokenId>;

constexpr double kLogitTolerance = 1e-4;       // of f32 logits, as of text
constexpr double kSmallLogitTolerance = 2e-4;  // of the random model, whose logits are ten times as large

std::vector<std::byte> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_FALSE(text.empty()) << path;
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// A case of a golden file: pictures, or the frames of one video.
struct MediaCase {
  std::vector<std::string> pictures, frames;

  explicit MediaCase(const json& c) {
    if (c.contains("image")) pictures = {c["image"].get<std::string>()};
    if (c.contains("images")) pictures = c["images"].get<std::vector<std::string>>();
    if (c.contains("video")) frames = c["video"].get<std::vector<std::string>>();
  }
};

/// Runs prompts with media one after the other.
class PictureEngine {
 public:
  PictureEngine(const fs::path& model, fs::path media_folder, DType dtype, const Speculation& speculation = {},
                int64_t prefill_chunk = 2048, const char* quantization = "none")
      : media_folder_(std::move(media_folder)),
        options_(make_options(model, dtype, speculation, prefill_chunk, quantization)),
        cluster_(options_),
        engine_(options_, cluster_) {}

  std::vector<std::shared_ptr<const Medium>> read(const MediaCase& files) {
    const MediaIntake& intake = engine_.require_media();
    std::vector<std::shared_ptr<const Medium>> media;
    for (const std::string& name : files.pictures) media.push_back(intake.read_picture(read_file(media_folder_ / name), name));
    if (files.frames.empty()) return media;
    std::vector<std::byte> bytes;
    const auto frame = [&](int64_t i) -> std::span<const std::byte> {
      return bytes = read_file(media_folder_ / files.frames[static_cast<std::size_t>(i)]);
    };
    media.push_back(intake.read_video({.num_frames = std::ssize(files.frames), .frame = frame}, "video"));
    return media;
  }

  /// The user's message, as `ferry generate --chat` asks it.
  MediaPrompt chat(const MediaCase& files, const std::string& text) {
    const std::vector<std::shared_ptr<const Medium>> media = read(files);
    std::string content;
    for (const auto& medium : media) content += engine_.require_media().placeholder(medium->kind);
    ChatInput chat;
    chat.messages.push_back({{"role", "user"}, {"content", content + text}});
    const std::string rendered = ChatTemplate::load(options_.model).render(chat);
    return engine_.require_media().place(engine_.require_tokenizer().encode(rendered), media);
  }

  /// Token ids with one placeholder for each picture.
  MediaPrompt place(const MediaCase& files, const Tokens& ids) { return engine_.require_media().place(ids, read(files)); }

  /// Logits of the prompt's last token, and the tokens that follow greedily, with the drafts of every step.
  struct Answer {
    std::vector<float> logits;
    Tokens tokens;
    std::vector<Tokens> drafts;  // behind the prompt, then behind every step
  };
  Answer answer(const MediaPrompt& prompt, int32_t num_tokens) {
    Scheduler scheduler(engine_.scheduler_options());
    Request request;
    request.prompt = prompt.ids;
    request.media = prompt.media;
    request.sampling.max_tokens = num_tokens + 16;  // drafts are not cut short
    request.sampling.ignore_eos = true;
    validate_request(request, engine_.scheduler_options());
    Sequence& sequence = *scheduler.add(std::move(request), {});
    EXPECT_EQ(scheduler.plan({}).num_rows, 0);
    while (scheduler.next_for_media() != nullptr) engine_.encode_media(scheduler, [] { return false; });
    Answer answer;
    StepSampler sampler(engine_.pool(), {.vocab_size = engine_.config().vocab_size, .max_sequences = 2, .max_drafts = 8});
    while (sequence.num_generated() < num_tokens) {
      const StepPlan& plan = scheduler.plan({});
      HostLogits& logits = engine_.compute(plan);
      if (answer.logits.empty() && logits.num_rows() > 0) answer.logits = last_row(logits.all_values());
      scheduler.commit(plan, sampler.run(plan, logits), {});
      engine_.draft(plan, scheduler);
      if (!sequence.in_prefill()) answer.drafts.push_back(sequence.drafts);
    }
    const auto first = sequence.tokens.begin() + sequence.num_prompt();
    answer.tokens.assign(first, first + num_tokens);
    return answer;
  }

 private:
  static EngineOptions make_options(const fs::path& model, DType dtype, const Speculation& speculation, int64_t prefill_chunk,
                                    const char* quantization) {
    EngineOptions options;
    options.model = model;
    options.dtype = dtype;
    options.threads = 2;
    options.max_seqs = 2;
    options.memory_bytes = int64_t{64} << 20;
    options.max_context = 256;
    options.prefill_chunk = prefill_chunk;
    options.token_budget = 128;
    options.speculation = speculation;
    if (quantization != std::string("none")) options.quantization = parse_quantization(quantization);
    options.media.is_wanted = true;
    return options;
  }

  static std::vector<float> last_row(ConstMatrixView logits) {
    std::vector<float> row(static_cast<std::size_t>(logits.cols));
    visit_dtype(logits.dtype, [&]<class T>() {
      const T* values = logits.row<T>(logits.rows - 1);
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = to_float(values[i]);
    });
    return row;
  }

  fs::path media_folder_;
  EngineOptions options_;
  Cluster cluster_;
  Engine engine_;
};

/// Row `row` of a golden tensor, the only one if it is a vector.
std::vector<float> golden_row(const SafetensorsFile& file, const std::string& name, int64_t row, std::size_t cols) {
  const TensorInfo* info = file.find(name);
  if (info == nullptr) {
    ADD_FAILURE() << name;
    return {};
  }
  const auto* values = reinterpret_cast<const float*>(info->data) + row * static_cast<int64_t>(cols);
  return {values, values + cols};
}

void expect_near(const std::vector<float>& expected, const std::vector<float>& actual, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(expected[i]) - static_cast<double>(actual[i])));
  EXPECT_LE(largest, tolerance) << what;
}

/// The demo's media: its own pictures, and the frames beside the goldens.
fs::path demo_folder(const json& c) { return c.contains("video") ? kGoldenFolder / "demo_vision" : kDemoFolder / "pictures"; }

std::string demo_case_name(const json& c, int& num_pictures) {
  return c.contains("video") ? "video" : c.contains("images") ? "two_images" : "image" + std::to_string(num_pictures++);
}

TEST(PictureGolden, DemoLogitsAndTokensInFloat32) {
  const json golden = read_json(kGoldenFolder / "demo_vision" / "golden.json");
  const SafetensorsFile tensors(kGoldenFolder / "demo_vision" / "golden.safetensors");
  for (const int64_t prefill_chunk : {2048, 8}) {
    int num_pictures = 0;
    for (const json& c : golden["cases"]) {
      const std::string name = demo_case_name(c, num_pictures);
      SCOPED_TRACE(name);
      PictureEngine engine(kDemoFolder, demo_folder(c), DType::kF32, {}, prefill_chunk);
      const MediaPrompt prompt = engine.chat(MediaCase(c), c["prompt"]);
      ASSERT_EQ(prompt.ids, c["ids"].get<Tokens>());
      const auto greedy = c["greedy"].get<Tokens>();
      const PictureEngine::Answer answer = engine.answer(prompt, static_cast<int32_t>(greedy.size()));
      EXPECT_EQ(answer.tokens, greedy);
      expect_near(golden_row(tensors, name + ".logits_last", 0, answer.logits.size()), answer.logits, kLogitTolerance, name);
    }
  }
}

// What bf16 and codes change turns no token around, though one lead of float32 is but 0.6.
TEST(PictureGolden, DemoTokensInBfloat16AndInCodes) {
  const json golden = read_json(kGoldenFolder / "demo_vision" / "golden.json");
  for (const char* quantization : {"none", "w8a8"}) {
    for (const json& c : golden["cases"]) {
      PictureEngine engine(kDemoFolder, demo_folder(c), DType::kBF16, {}, 2048, quantization);
      const auto greedy = c["greedy"].get<Tokens>();
      const MediaPrompt prompt = engine.chat(MediaCase(c), c["prompt"]);
      EXPECT_EQ(engine.answer(prompt, static_cast<int32_t>(greedy.size())).tokens, greedy) << quantization << c;
    }
  }
}

TEST(PictureGolden, RandomModelLogitsAndTokensInFloat32) {
  const fs::path model = kGoldenFolder / "qwen3_5_vl";
  const json golden = read_json(model / "golden.json");
  const SafetensorsFile tensors(model / "golden.safetensors");
  PictureEngine engine(model, model, DType::kF32);
  int num_pictures = 0;
  for (const json& c : golden["vision"]) {
    if (!c.contains("ids")) continue;
    const std::string name = demo_case_name(c, num_pictures);
    SCOPED_TRACE(name);
    const auto expanded = c["ids"].get<Tokens>();
    Tokens ids = expanded;  // a run of placeholders is one picture's
    const TokenId pad = read_json(model / "config.json")["image_token_id"];
    ids.erase(std::unique(ids.begin(), ids.end(), [pad](TokenId a, TokenId b) { return a == pad && b == pad; }), ids.end());
    const MediaPrompt prompt = engine.place(MediaCase(c), ids);
    ASSERT_EQ(prompt.ids, expanded);
    const Tokens greedy = c.value("greedy", Tokens{});
    const PictureEngine::Answer answer = engine.answer(prompt, std::max<int32_t>(static_cast<int32_t>(greedy.size()), 1));
    if (!greedy.empty()) {
      EXPECT_EQ(answer.tokens, greedy);
    }
    expect_near(golden_row(tensors, name + ".logits", std::ssize(expanded) - 1, answer.logits.size()), answer.logits,
                kSmallLogitTolerance, name);
  }
}

// The MTP layer reads the tower's embeddings at the placeholders, and the trunk's positions on all axes.
TEST(PictureGolden, DemoDraftsBehindAPictureAsTheReference) {
  const json golden = read_json(kGoldenFolder / "demo_mtp" / "golden.json");
  const json& prompt = golden["prompts"].back();
  ASSERT_TRUE(prompt.contains("picture"));
  const auto greedy = prompt["greedy"].get<Tokens>();
  for (const int64_t prefill_chunk : {2048, 8}) {
    for (const int64_t max_drafts : {1, 2, 3}) {
      PictureEngine engine(kDemoFolder, kDemoFolder / "pictures", DType::kF32, {Speculation::Source::kMtp, max_drafts},
                           prefill_chunk);
      const MediaPrompt asked = engine.chat(MediaCase(json::object({{"image", prompt["picture"]}})), prompt["prompt"]);
      ASSERT_EQ(asked.ids, prompt["ids"].get<Tokens>());
      const PictureEngine::Answer answer = engine.answer(asked, static_cast<int32_t>(greedy.size()));
      EXPECT_EQ(answer.tokens, greedy);
      const json& rounds = prompt["speculation"][std::to_string(max_drafts)];
      ASSERT_GE(answer.drafts.size(), rounds.size());
      for (std::size_t i = 0; i < rounds.size(); ++i)
        EXPECT_EQ(answer.drafts[i], rounds[i]["drafts"].get<Tokens>()) << "K = " << max_drafts << ", round " << i;
    }
  }
}

// The same picture again is found by its contents, not by its file; it gives the same bits.
TEST(PictureGolden, AKnownPictureGivesTheSameLogits) {
  const json golden = read_json(kGoldenFolder / "demo_vision" / "golden.json");
  const json& c = golden["cases"][0];
  PictureEngine engine(kDemoFolder, kDemoFolder / "pictures", DType::kF32);
  const std::vector<float> first = engine.answer(engine.chat(MediaCase(c), c["prompt"]), 1).logits;
  const std::vector<float> second = engine.answer(engine.chat(MediaCase(c), c["prompt"]), 1).logits;
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace ferry
