#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/engine.h"
#include "runtime/mtp_drafter.h"
#include "tests/support/golden_files.h"
#include "tests/support/listed_device.h"

// Drafts of the MTP layer against the reference: tests/golden/README.md says what the data is.

namespace ferry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::kGoldenFolder;
using test::read_json;
using Tokens = std::vector<TokenId>;

/// What was known, and what was guessed to follow.
struct Round {
  int64_t known;
  Tokens drafts;
  bool operator==(const Round&) const = default;
};

void PrintTo(const Round& round, std::ostream* out) {
  *out << round.known << " known:";
  for (const TokenId token : round.drafts) *out << " " << token;
}

struct Decoded {
  Tokens tokens;  // generated
  std::vector<Round> rounds;
};

/// Decodes `num_tokens` greedily with `max_drafts` drafts a step, in prompt pieces of up to `prefill_chunk` tokens.
class DraftingEngine {
 public:
  DraftingEngine(const fs::path& model, int64_t max_drafts, int64_t prefill_chunk = 2048, const DeviceChoice& device = {})
      : DraftingEngine(model, {Speculation::Source::kMtp, max_drafts}, prefill_chunk, 128, device) {}
  DraftingEngine(const fs::path& model, const Speculation& speculation, int64_t prefill_chunk, int64_t token_budget,
                 const DeviceChoice& device = {})
      : options_(make_options(model, speculation, prefill_chunk, token_budget, device)),
        cluster_(options_),
        engine_(options_, cluster_) {}

  Decoded decode(const Tokens& prompt, int32_t num_tokens) {
    Scheduler scheduler(engine_.scheduler_options());
    Request request;
    request.prompt = prompt;
    request.sampling.max_tokens = num_tokens + 16;  // drafts are not cut short
    request.sampling.ignore_eos = true;
    Sequence& sequence = *scheduler.add(std::move(request), {});
    Decoded decoded;
    while (sequence.num_generated() < num_tokens) {
      const StepPlan& plan = scheduler.plan({});
      scheduler.commit(plan, engine_.run_step(plan), {});
      engine_.draft(plan, scheduler);
      if (!sequence.in_prefill()) decoded.rounds.push_back({std::ssize(sequence.tokens), sequence.drafts});
    }
    const auto first = sequence.tokens.begin() + sequence.num_prompt();
    decoded.tokens.assign(first, first + num_tokens);
    return decoded;
  }

 private:
  static EngineOptions make_options(const fs::path& model, const Speculation& speculation, int64_t prefill_chunk,
                                    int64_t token_budget, const DeviceChoice& device) {
    EngineOptions options;
    options.device = device;
    options.model = model;
    options.dtype = DType::kF32;
    options.threads = 2;
    options.max_seqs = 2;
    options.memory_bytes = int64_t{64} << 20;
    options.max_context = 256;
    options.prefill_chunk = prefill_chunk;
    options.token_budget = token_budget;
    options.speculation = speculation;
    return options;
  }

  EngineOptions options_;
  Cluster cluster_;
  Engine engine_;
};

TEST(MtpGolden, DemoDraftsEveryRoundAsTheReference) {
  const json golden = read_json(kGoldenFolder / "demo_mtp" / "golden.json");
  for (const int64_t max_drafts : {1, 2, 3}) {
    DraftingEngine engine(test::source_folder() / "launch" / "demo", max_drafts);
    for (const json& prompt : golden.at("prompts")) {
      if (prompt.contains("picture")) continue;  // picture_golden_test.cpp
      const auto greedy = prompt.at("greedy").get<Tokens>();
      const Decoded decoded = engine.decode(prompt.at("ids").get<Tokens>(), static_cast<int32_t>(greedy.size()));
      EXPECT_EQ(decoded.tokens, greedy);
      std::vector<Round> expected;
      for (const json& round : prompt.at("speculation").at(std::to_string(max_drafts)))
        expected.push_back({round.at("known").get<int64_t>(), round.at("drafts").get<Tokens>()});
      ASSERT_GE(decoded.rounds.size(), expected.size());
      const std::vector<Round> rounds(decoded.rounds.begin(), decoded.rounds.begin() + std::ssize(expected));
      EXPECT_EQ(rounds, expected) << prompt.at("prompt");
    }
  }
}

// Mixtures and dense networks, FP8 blocks and GPTQ groups.
constexpr std::array kDraftingFixtures = {"fp8_qwen3_5_moe", "fp8_qwen3_5", "gptq_qwen3_5_moe", "qwen3_5_vl"};

void expect_drafts_of_fixture(const std::string& name, int64_t prefill_chunk, const DeviceChoice& device) {
  const json golden = read_json(kGoldenFolder / name / "golden.json");
  DraftingEngine engine(kGoldenFolder / name, 3, prefill_chunk, device);
  for (std::size_t i = 0; i < golden.at("mtp").size(); ++i) {
    const json& mtp = golden.at("mtp")[i];
    const Decoded decoded = engine.decode(golden.at("prompts")[i].at("ids").get<Tokens>(), 1);
    EXPECT_EQ(decoded.tokens, Tokens{mtp.at("first").get<TokenId>()});
    EXPECT_EQ(decoded.rounds.at(0).drafts, mtp.at("drafts").get<Tokens>()) << name << " prompt " << i;
  }
}

// A prompt in one piece and in several.
TEST(MtpGolden, FixturesDraftAsTheReference) {
  for (const char* name : kDraftingFixtures) {
    for (const int64_t prefill_chunk : {64, 8}) expect_drafts_of_fixture(name, prefill_chunk, {});
  }
}

TEST(MtpGolden, FixturesDraftAsTheReferenceOnAVulkanDevice) {
  if (!test::has_vulkan_device()) GTEST_SKIP() << "no Vulkan device";
  // An emulated device takes seconds for each of them.
  expect_drafts_of_fixture("fp8_qwen3_5_moe", 64, {DeviceChoice::Kind::kVulkan, std::nullopt});
  expect_drafts_of_fixture("gptq_qwen3_5_moe", 8, {DeviceChoice::Kind::kVulkan, std::nullopt});
}

// Random weights guess wrong nearly every time, so that the policy soon tries drafts only now and then. Between, the last pairs
// wait to be taken in. If none had to be dropped meanwhile, what is guessed afterwards is what it would have been without the
// wait; if some were, the tokens are the same all the same.
/// Rounds of a run whose numbers of drafts followed its own times.
struct WaitingRounds {
  int num_without = 0;   // drafts
  int num_compared = 0;  // with those of a run that drafted every time, before the first gap
};

/// Drafts behind pairs that waited, and were not dropped, are those of `expected`.
WaitingRounds compare_drafts(const Decoded& decoded, const std::map<int64_t, Tokens>& expected, int64_t max_waiting) {
  WaitingRounds seen;
  int64_t num_waiting = 0, known = 0;
  bool has_gap = false;
  for (const Round& round : decoded.rounds) {
    num_waiting += round.known - std::exchange(known, round.known);
    seen.num_without += round.drafts.empty() ? 1 : 0;
    if (round.drafts.empty()) continue;
    has_gap = has_gap || (seen.num_compared > 0 && num_waiting > max_waiting);
    num_waiting = 0;
    const auto all = expected.find(round.known);
    if (has_gap || all == expected.end()) continue;
    ++seen.num_compared;
    EXPECT_EQ(round.drafts, Tokens(all->second.begin(), all->second.begin() + std::ssize(round.drafts))) << round.known;
  }
  return seen;
}

TEST(MtpGolden, PairsThatWaitedGiveTheSameDrafts) {
  const fs::path model = kGoldenFolder / "fp8_qwen3_5_moe";
  const json golden = read_json(model / "golden.json");
  const auto prompt = golden.at("prompts")[0].at("ids").get<Tokens>();
  const int32_t num_tokens = 200;
  DraftingEngine fixed(model, 3);
  const Decoded expected = fixed.decode(prompt, num_tokens);
  std::map<int64_t, Tokens> expected_drafts;
  for (const Round& round : expected.rounds) expected_drafts[round.known] = round.drafts;
  for (const int64_t token_budget : {3, 20, 128}) {
    WaitingRounds seen;
    const auto has_seen_both = [&] { return seen.num_without > 20 && seen.num_compared >= 3; };
    constexpr int kMaxRuns = 8;  // when to draft is decided by times, which can be anything
    for (int run = 0; run < kMaxRuns && !has_seen_both(); ++run) {
      DraftingEngine engine(model, {Speculation::Source::kAuto, 0}, /*prefill_chunk=*/1, token_budget);
      const Decoded decoded = engine.decode(prompt, num_tokens);
      EXPECT_EQ(decoded.tokens, expected.tokens);
      seen = compare_drafts(decoded, expected_drafts, std::min(MtpDrafter::kMaxPutOff, token_budget));
    }
    EXPECT_TRUE(has_seen_both()) << token_budget << ": " << seen.num_without << ", " << seen.num_compared;
  }
}

}  // namespace
}  // namespace ferry
