#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <random>

#include "runtime/base/error.h"
#include "runtime/grammar/grammar_engine.h"
#include "tests/runtime/grammar/random_walk.h"
#include "tests/support/schema_validator.h"
#include "tests/support/source_folder.h"

// What schemas cost over a vocabulary: to compile, in memory, and a mask for each token of random completions, which must be
// valid.
//
//     grammar_bench --tokenizer DIR [--schemas FILE] [--walks 4] [--match TEXT]
//
// FILE is a list of {"name", "schema"}, by default what people have (tests/e2e/wild_schemas.json). The exit code is 1 after a
// completion that is not valid.

namespace {

using ferry::GrammarEngine;
using nlohmann::json;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string tokenizer, schemas, match;
  int walks = 4;
};

double percentile(std::vector<double>& values, double share) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

class Bench {
 public:
  Bench(const ferry::Tokenizer& tokenizer, int walks)
      : tokenizer_(tokenizer),
        walks_(walks),
        engine_(tokenizer, {*tokenizer.id_of("<|im_end|>"), *tokenizer.id_of("<|endoftext|>")}) {
    engine_.make(ferry::json_object_grammar(), false);  // the vocabulary is read once
  }

  void measure(const std::string& name, const ordered_json& schema) try {
    const int64_t bytes_before = engine_.cached_bytes();
    const Clock::time_point begin = Clock::now();
    const ferry::GrammarSpec spec = ferry::json_schema_grammar(schema, "schema");
    engine_.make(spec, false);
    const double compile_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    std::vector<double> mask_us;
    int num_ended = 0;
    for (int i = 0; i < walks_; ++i) {
      const std::shared_ptr<ferry::TokenGrammar> grammar = engine_.make(spec, false);
      const ferry::test::Walk walk = ferry::test::random_walk(*grammar, tokenizer_, random_, 60);
      mask_us.insert(mask_us.end(), walk.mask_us.begin(), walk.mask_us.end());
      if (!walk.terminated) continue;
      ++num_ended;
      const std::string why = ferry::test::invalid_text(walk.text, json(schema));
      if (!why.empty()) std::printf("INVALID: %s: %s: %s\n", name.c_str(), why.c_str(), walk.text.c_str());
      has_invalid |= !why.empty();
    }
    std::printf("%-32s %9.1f ms %8.1f KiB  masks %6.1f us, p99 %7.1f us  %d of %d walks ended\n", name.c_str(), compile_ms,
                static_cast<double>(engine_.cached_bytes() - bytes_before) / 1024, percentile(mask_us, 0.5),
                percentile(mask_us, 0.99), num_ended, walks_);
  } catch (const ferry::Error& error) {
    std::printf("%-32s refused: %s\n", name.c_str(), error.what());
  }

  bool has_invalid = false;

 private:
  const ferry::Tokenizer& tokenizer_;
  int walks_;
  GrammarEngine engine_;
  std::mt19937 random_{5};
};

int run(const Settings& settings) {
  if (!GrammarEngine::is_available()) {
    std::printf("structured output is not built\n");
    return 0;
  }
  const ferry::Tokenizer tokenizer = ferry::Tokenizer::load(settings.tokenizer);
  Bench bench(tokenizer, settings.walks);
  std::ifstream file(settings.schemas);
  for (const ordered_json& entry : ordered_json::parse(file)) {
    const auto name = entry.at("name").get<std::string>();
    if (name.find(settings.match) != std::string::npos) bench.measure(name, entry.at("schema"));
  }
  return bench.has_invalid ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) try {
  Settings settings;
  settings.tokenizer = (ferry::test::source_folder() / "launch/demo").string();
  settings.schemas = (ferry::test::source_folder() / "tests/e2e/wild_schemas.json").string();
  CLI::App app("Measures what JSON schemas cost over a vocabulary.");
  app.add_option("--tokenizer", settings.tokenizer, "folder of a checkpoint's tokenizer; default: launch/demo");
  app.add_option("--schemas", settings.schemas, "list of {\"name\", \"schema\"}; default: tests/e2e/wild_schemas.json");
  app.add_option("--match", settings.match, "text that the names of the schemas must have");
  app.add_option("--walks", settings.walks, "completions of each; default 4");
  CLI11_PARSE(app, argc, argv);
  return run(settings);
} catch (const std::exception& error) {
  std::fprintf(stderr, "grammar_bench: %s\n", error.what());
  return 1;
}
