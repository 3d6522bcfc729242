#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "runtime/coordinator.h"
#include "runtime/engine.h"
#include "tests/support/completion.h"
#include "tests/support/cycle_grammar.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

// Requests with a grammar, through the engine.

namespace ferry {
namespace {

using test::CycleGrammar;

/// A tiny model of 97 ids with `speculation`.
class ConstrainedRun {
 public:
  explicit ConstrainedRun(const Speculation& speculation) {
    test::TinyModel().write(dir_.path());
    EngineOptions options;
    options.model = dir_.path();
    options.threads = 2;
    options.memory_bytes = int64_t{64} << 20;
    options.max_seqs = 4;
    options.speculation = speculation;
    cluster_.emplace(options);
    engine_.emplace(options, *cluster_);
    coordinator_.emplace(*engine_);
  }
  std::unique_ptr<test::Completion> complete(std::shared_ptr<TokenGrammar> grammar, float temperature) {
    Request request = test::make_request({5, 12, 19, 26, 33}, 40);
    request.grammar = std::move(grammar);
    request.sampling.ignore_eos = true;
    request.sampling.temperature = temperature;
    return test::complete(*coordinator_, request);
  }

 private:
  test::TempFolder dir_;
  std::optional<Cluster> cluster_;
  std::optional<Engine> engine_;
  std::optional<Coordinator> coordinator_;
};

TEST(ConstrainedRequest, KeepsToItsGrammarWithDraftsAndWithout) {
  const std::vector<std::vector<TokenId>> sets{{3, 40, 41}, {7}, {}, {90, 8}};
  std::vector<std::vector<TokenId>> plain;
  for (const int64_t max_drafts : {0, 3}) {
    ConstrainedRun run({Speculation::Source::kNgram, max_drafts});
    for (const float temperature : {0.0F, 1.2F}) {
      const auto grammar = std::make_shared<CycleGrammar>(sets, 30);
      const auto completion = run.complete(grammar, temperature);
      EXPECT_EQ(completion->last.finish_reason, FinishReason::kStop) << "where nothing may follow";
      ASSERT_EQ(completion->tokens.size(), 30U);
      EXPECT_EQ(grammar->accepted, completion->tokens);
      for (std::size_t i = 0; i < completion->tokens.size(); ++i) {
        const std::vector<TokenId>& set = sets[i % sets.size()];
        EXPECT_TRUE(set.empty() || std::ranges::find(set, completion->tokens[i]) != set.end()) << i;
      }
      if (max_drafts == 0)
        plain.push_back(completion->tokens);
      else
        EXPECT_EQ(completion->tokens, plain[temperature > 0 ? 1 : 0]);
    }
  }
}

TEST(ConstrainedRequest, AGrammarThatFailsEndsItsRequestAlone) {
  ConstrainedRun run({Speculation::Source::kNgram, 0});
  const auto grammar = std::make_shared<CycleGrammar>(std::vector<std::vector<TokenId>>{{3}}, 9);
  grammar->throws = true;
  const auto failed = run.complete(grammar, 0.0F);
  EXPECT_EQ(failed->last.finish_reason, FinishReason::kError);
  ASSERT_TRUE(failed->last.error.has_value());
  EXPECT_EQ(std::string(failed->last.error->what()), "the request's grammar failed: no mask");
  EXPECT_EQ(run.complete(nullptr, 0.0F)->last.finish_reason, FinishReason::kLength);
}

}  // namespace
}  // namespace ferry
