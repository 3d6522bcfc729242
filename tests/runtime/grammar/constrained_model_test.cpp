#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "runtime/coordinator.h"
#include "runtime/engine.h"
#include "runtime/grammar/grammar_engine.h"
#include "tests/support/completion.h"
#include "tests/support/schema_validator.h"
#include "tests/support/source_folder.h"

// The demo model under grammars, through the engine, with drafts and without.

namespace ferry {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::vector<TokenId> stop_ids(const Tokenizer& tokenizer) {
  return {*tokenizer.id_of("<|im_end|>"), *tokenizer.id_of("<|endoftext|>")};
}

class DemoRun {
 public:
  explicit DemoRun(const Speculation& speculation) {
    EngineOptions options;
    options.model = test::source_folder() / "launch/demo";
    options.threads = 2;
    options.memory_bytes = int64_t{256} << 20;
    options.max_seqs = 4;
    options.speculation = speculation;
    cluster_.emplace(options);
    engine_.emplace(options, *cluster_);
    coordinator_.emplace(*engine_);
    grammars_.emplace(tokenizer(), stop_ids(tokenizer()), GrammarEngineOptions{.compile_time = std::chrono::minutes(4)});
  }
  const Tokenizer& tokenizer() const { return *engine_->tokenizer(); }

  std::unique_ptr<test::Completion> complete(const GrammarSpec& spec, float temperature, uint64_t seed) {
    Request request = test::make_request(tokenizer().encode("The river runs past the mill, and the report says:"), 160);
    request.grammar = grammars_->make(spec, false);
    request.sampling.temperature = temperature;
    request.sampling.seed = seed;
    return test::complete(*coordinator_, request);
  }

 private:
  std::optional<Cluster> cluster_;
  std::optional<Engine> engine_;
  std::optional<Coordinator> coordinator_;
  std::optional<GrammarEngine> grammars_;
};

TEST(ConstrainedModel, KeepsToSchemasAtHighTemperatureWithDraftsAndWithout) {
  if (!GrammarEngine::is_available()) GTEST_SKIP() << "structured output is not built";
  std::ifstream file(test::source_folder() / "tests/runtime/grammar/schemas.json");
  const ordered_json cases = ordered_json::parse(file);
  std::vector<std::vector<TokenId>> plain;
  int num_finished = 0;
  for (const int64_t max_drafts : {0, 3}) {
    DemoRun run({Speculation::Source::kNgram, max_drafts});
    std::size_t index = 0;
    for (const ordered_json& entry : cases) {
      SCOPED_TRACE(entry["name"]);
      const GrammarSpec spec = json_schema_grammar(entry["schema"], "schema");
      const auto completion = run.complete(spec, index % 3 == 0 ? 0.0F : 1.5F, index);
      ASSERT_FALSE(completion->last.error.has_value()) << completion->last.error->what();
      if (max_drafts == 0) {
        plain.push_back(completion->tokens);
      } else {
        EXPECT_EQ(completion->tokens, plain[index]);
      }
      ++index;
      if (completion->last.finish_reason != FinishReason::kStop) continue;
      ++num_finished;
      const std::string text = run.tokenizer().decode(completion->tokens, SpecialTokens::kSkip);
      EXPECT_EQ(test::invalid_text(text, json(entry["schema"])), "") << text;
    }
  }
  EXPECT_GE(num_finished, static_cast<int>(cases.size())) << "completions end";
}

}  // namespace
}  // namespace ferry
