#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/engine.h"
#include "tests/support/prompt_run.h"
#include "tests/support/source_folder.h"

// What quantised weights, and keys and values in codes, cost in accuracy: every mode against the float32 run of the same
// checkpoint, or of the one that it was made of, on the checkpoint's golden prompts with their continuations (golden.json,
// where the folder has one) and on prose.
// Prints one table:
//
//   KL       mean over positions of KL(f32 || mode) of the next token's distribution, nats per token
//   same     share of the positions whose most likely token is that of f32
//   text, chat   golden greedy continuations that the mode writes word for word, of those that there are

namespace {

using ferry::Engine;
using ferry::EngineOptions;
using ferry::TokenId;
using ferry::test::EngineDriver;
using ferry::test::Piece;
using Logits = std::vector<std::vector<float>>;  // [tokens][vocab]

namespace fs = std::filesystem;

const fs::path kSource = ferry::test::source_folder();
constexpr int64_t kMaxProse = 4096;  // tokens of a text

struct Golden {
  bool is_chat = false;
  std::vector<TokenId> prompt, greedy;
};

/// What is compared: the tokens of every text, goldens first.
struct Texts {
  std::vector<Golden> goldens;
  std::vector<std::vector<TokenId>> prose;
};

struct Arguments {
  fs::path model = kSource / "launch" / "demo";
  fs::path reference;  // whose float32 run is the measure; empty: the model's
  std::vector<std::string> texts{(kSource / "tests" / "bench" / "prose.txt").string()};
  std::vector<std::string> modes{"f32",
                                 "bf16",
                                 "kv=int8",
                                 "w8a8",
                                 "w4a8:32",
                                 "w4a8",
                                 "w4a8:128",
                                 "experts=w4a8",
                                 "experts=w4a8,lm_head=w8a8",
                                 "experts=w4a8,shared=w8a8,mixers=w8a8,lm_head=w8a8"};
  int32_t threads = 2;
};

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  if (!file) throw ferry::Error(ferry::ErrorCode::kNotFound, "cannot read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Texts read_texts(const Arguments& arguments, const Engine& engine) {
  Texts texts;
  const fs::path golden_path = arguments.model / "golden.json";
  if (fs::exists(golden_path)) {
    const nlohmann::json file = nlohmann::json::parse(read_text(golden_path));
    for (const nlohmann::json& golden : file.at("generation")) {
      texts.goldens.push_back({.is_chat = golden.at("kind") == "chat",
                               .prompt = golden.at("ids").get<std::vector<TokenId>>(),
                               .greedy = golden.at("greedy").get<std::vector<TokenId>>()});
    }
  }
  for (const std::string& path : arguments.texts) {
    texts.prose.push_back(engine.require_tokenizer().encode(read_text(path)));
    if (texts.prose.back().size() > kMaxProse) texts.prose.back().resize(kMaxProse);
  }
  return texts;
}

/// The run of one mode: an engine that gives the logits of every row.
class Run {
 public:
  Run(const Arguments& arguments, const std::string& mode)
      : options_(make_options(arguments, mode)), cluster_(options_), engine_(options_, cluster_, Engine::LogitRows::kAll) {}

  Engine& engine() { return engine_; }
  Logits logits(std::span<const TokenId> tokens) {
    driver_.reset(0);
    return driver_.prompt(0, tokens);
  }
  /// Whether greedy decoding writes what `golden` says.
  bool writes(const Golden& golden) {
    std::vector<float> last = logits(golden.prompt).back();
    for (const TokenId expected : golden.greedy) {
      const TokenId token = greedy(last);
      if (token != expected) return false;
      const Piece piece{0, {&token, 1}, ferry::DeltaForm::kRecurrent};
      last = driver_.step({&piece, 1}).back();
    }
    return true;
  }
  TokenId greedy(const std::vector<float>& logits) const {
    return static_cast<TokenId>(std::max_element(logits.begin(), logits.begin() + vocab()) - logits.begin());
  }
  /// Rows of lm_head behind the last token are padding.
  int64_t vocab() const { return std::min<int64_t>(engine_.config().vocab_size, engine_.require_tokenizer().size()); }

 private:
  static EngineOptions make_options(const Arguments& arguments, const std::string& mode) {
    EngineOptions options;
    options.model = arguments.model;
    options.threads = arguments.threads;
    options.max_seqs = 1;
    options.dtype = mode == "f32" ? ferry::DType::kF32 : ferry::DType::kBF16;
    constexpr std::string_view kKvCodes = "kv=int8";
    if (mode == kKvCodes) {
      options.kv_cache_dtype = ferry::DType::kI8;
    } else if (mode != "f32" && mode != "bf16") {
      options.quantization = ferry::parse_quantization(mode);
    }
    return options;
  }

  EngineOptions options_;
  ferry::Cluster cluster_;
  Engine engine_;
  EngineDriver driver_{engine_};
};

/// KL(p || q) of the distributions that two rows of logits stand for, in nats.
double divergence(const std::vector<float>& p, const std::vector<float>& q, int64_t vocab) {
  const auto log_sum = [vocab](const std::vector<float>& logits) {
    const double largest = *std::max_element(logits.begin(), logits.begin() + vocab);
    double sum = 0;
    for (int64_t i = 0; i < vocab; ++i) sum += std::exp(logits[static_cast<std::size_t>(i)] - largest);
    return largest + std::log(sum);
  };
  const double log_p = log_sum(p), log_q = log_sum(q);
  double sum = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(vocab); ++i) {
    sum += std::exp(p[i] - log_p) * ((p[i] - log_p) - (q[i] - log_q));
  }
  return sum;
}

/// Mean over the positions of some texts.
struct Comparison {
  double divergence = 0;
  int64_t num_same = 0;
  int64_t num_positions = 0;

  void add(const Run& run, const Logits& expected, const Logits& actual) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      divergence += ::divergence(expected[i], actual[i], run.vocab());
      num_same += run.greedy(expected[i]) == run.greedy(actual[i]);
    }
    num_positions += static_cast<int64_t>(expected.size());
  }
  double mean_divergence() const { return divergence / static_cast<double>(num_positions); }
  double share_same() const { return static_cast<double>(num_same) / static_cast<double>(num_positions); }
};

/// The float32 run's logits, in the order of Texts.
struct Expected {
  std::vector<Logits> goldens, prose;
};

std::vector<TokenId> whole(const Golden& golden) {
  std::vector<TokenId> tokens = golden.prompt;
  tokens.insert(tokens.end(), golden.greedy.begin(), golden.greedy.end());
  return tokens;
}

Expected run_f32(const Arguments& arguments, Texts& texts) {
  Arguments measure = arguments;
  if (!arguments.reference.empty()) measure.model = arguments.reference;
  Run run(measure, "f32");
  texts = read_texts(arguments, run.engine());
  Expected expected;
  for (const Golden& golden : texts.goldens) expected.goldens.push_back(run.logits(whole(golden)));
  for (const std::vector<TokenId>& prose : texts.prose) expected.prose.push_back(run.logits(prose));
  return expected;
}

void print_mode(const Arguments& arguments, const std::string& mode, const Texts& texts, const Expected& expected) {
  Run run(arguments, mode);
  Comparison goldens, prose;
  int written[2] = {}, present[2] = {};  // text, chat
  for (std::size_t i = 0; i < texts.goldens.size(); ++i) {
    const Golden& golden = texts.goldens[i];
    goldens.add(run, expected.goldens[i], run.logits(whole(golden)));
    ++present[golden.is_chat];
    written[golden.is_chat] += run.writes(golden);
  }
  for (std::size_t i = 0; i < texts.prose.size(); ++i) prose.add(run, expected.prose[i], run.logits(texts.prose[i]));
  std::printf("%-52s", mode.c_str());
  for (const Comparison& c : {goldens, prose}) {
    if (c.num_positions == 0) continue;
    std::printf("  %9.6f %6.2f %%", c.mean_divergence(), 100 * c.share_same());
  }
  if (present[0] + present[1] > 0) std::printf("   %d/%d   %d/%d", written[0], present[0], written[1], present[1]);
  std::printf("\n");
  std::fflush(stdout);
}

void print_table(const Arguments& arguments) {
  Texts texts;
  const Expected expected = run_f32(arguments, texts);
  std::size_t num_golden = 0, num_prose = 0;
  for (const Logits& logits : expected.goldens) num_golden += logits.size();
  for (const Logits& logits : expected.prose) num_prose += logits.size();
  std::printf("%s: %zu tokens of golden texts, %zu of prose\n%-52s", arguments.model.c_str(), num_golden, num_prose, "mode");
  if (num_golden > 0) std::printf("  %9s %8s", "golden KL", "same");
  if (num_prose > 0) std::printf("  %9s %8s", "prose KL", "same");
  if (num_golden > 0) std::printf("  text  chat");
  std::printf("\n");
  for (const std::string& mode : arguments.modes) {
    try {
      print_mode(arguments, mode, texts, expected);
    } catch (const ferry::Error& error) {  // such as groups that do not divide a matrix
      if (error.code() != ferry::ErrorCode::kInvalidArgument) throw;
      std::printf("%-52s  %s\n", mode.c_str(), error.what());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  std::string model;
  CLI::App app("KL divergence from float32 of modes of quantised weights");
  app.add_option("--model", model, "checkpoint folder, or demo");
  app.add_option("--reference", arguments.reference,
                 "folder of the checkpoint whose float32 run is the measure; default: the model");
  app.add_option("--text", arguments.texts, "files of prose");
  app.add_option("--modes", arguments.modes,
                 "f32, bf16, kv=int8 (bf16 over a cache of codes), or what --quantize takes; separated by blanks");
  app.add_option("--threads", arguments.threads)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  if (!model.empty() && model != "demo") arguments.model = model;
  try {
    print_table(arguments);
  } catch (const ferry::Error& error) {
    std::fprintf(stderr, "accuracy_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
