#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/engine.h"
#include "tests/support/listed_device.h"
#include "tests/support/served_answers.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

// Whatever of a prompt was computed before, for itself or for another one, logits and tokens are those of a prompt that is
// computed from its first token on, bit for bit.

namespace ferry {
namespace {

using test::Answer;
using test::Server;
using test::without_cache;

constexpr int64_t kUnit = 64;

std::vector<TokenId> random_tokens(int64_t count, uint32_t seed, TokenId vocab = 97) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(2 + random() % static_cast<uint32_t>(vocab - 2));
  return tokens;
}

Request request_of(const std::string& id, std::vector<TokenId> prompt, int32_t max_tokens = 3) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

/// The first `num_shared` of `tokens`, and others up to `num_tokens`.
std::vector<TokenId> branch(std::vector<TokenId> tokens, int64_t num_shared, int64_t num_tokens, uint32_t seed) {
  tokens.resize(static_cast<std::size_t>(num_shared));
  const std::vector<TokenId> others = random_tokens(num_tokens - num_shared, seed);
  tokens.insert(tokens.end(), others.begin(), others.end());
  return tokens;
}

EngineOptions engine_options(const std::filesystem::path& model) {
  EngineOptions options;
  options.model = model;
  options.threads = 2;
  options.max_seqs = 4;
  options.memory_bytes = int64_t{64} << 20;
  options.prefix_cache_bytes = int64_t{8} << 20;
  return options;
}

/// The tiny model in one of the ways in which it can be computed; i8: in bf16 over keys and values that are codes.
class TinyPrefixCache : public testing::TestWithParam<DType> {
 protected:
  TinyPrefixCache() {
    test::TinyModel().write(dir_.path());
    options_ = engine_options(dir_.path());
    options_.dtype = GetParam() == DType::kF32 ? DType::kF32 : DType::kBF16;
    if (GetParam() == DType::kI8) options_.kv_cache_dtype = DType::kI8;
  }
  test::TempFolder dir_;
  EngineOptions options_;
};
INSTANTIATE_TEST_SUITE_P(Types, TinyPrefixCache, testing::Values(DType::kF32, DType::kBF16, DType::kI8),
                         [](const auto& type) { return dtype_name(type.param); });

TEST_P(TinyPrefixCache, EveryLengthGoesOnFromItsLastUnit) {
  Cluster cluster(options_);
  Engine engine(options_, cluster);
  const std::vector<TokenId> text = random_tokens(401, 1);
  Server cold(engine, without_cache(engine.scheduler_options()));
  std::vector<Answer> expected;
  for (int64_t n = 1; n <= 400; ++n) expected.push_back(cold.answer(request_of("a", {text.begin(), text.begin() + n})));
  Server warm(engine, engine.scheduler_options());
  for (int64_t n = 1; n <= 400; ++n) {
    const Answer answer = warm.answer(request_of("a", {text.begin(), text.begin() + n}));
    // The snapshot before the last token is that of the first prompt which is a token longer.
    const int64_t last = (n - 1) / kUnit * kUnit;
    ASSERT_EQ(answer.num_cached, last > 0 && n == last + 1 ? last - kUnit : last) << n << " tokens";
    ASSERT_EQ(answer, expected[static_cast<std::size_t>(n - 1)]) << n << " tokens";
  }
  const PrefixCacheLoad load = warm.load().prefix_cache;
  EXPECT_EQ(load.num_queries, 400);
  EXPECT_EQ(load.num_query_tokens, 400 * 401 / 2);
  EXPECT_EQ(load.num_snapshots, 6);
  EXPECT_EQ(load.misses[static_cast<std::size_t>(CacheMiss::kShort)], kUnit);
}

TEST_P(TinyPrefixCache, EveryUnitIsAPlaceToGoOnFrom) {
  Cluster cluster(options_);
  Engine engine(options_, cluster);
  const std::vector<TokenId> text = random_tokens(400, 2);
  for (int64_t r = kUnit; r < 400; r += kUnit) {
    Server warm(engine, engine.scheduler_options());
    warm.answer(request_of("first", {text.begin(), text.begin() + r + 1}, 1));
    std::map<int64_t, Answer> answers;
    const auto prompt_of = [&](int64_t n) {
      return branch(text, r + (n % 3 == 0 ? kUnit / 2 : 0), n, static_cast<uint32_t>(n));
    };
    for (int64_t n = r + kUnit; n <= 400; n += 13) {
      answers[n] = warm.answer(request_of("a", prompt_of(n)));
      ASSERT_EQ(answers[n].num_cached, r) << n << " tokens";
    }
    Server cold(engine, without_cache(engine.scheduler_options()));
    for (const auto& [n, answer] : answers)
      ASSERT_EQ(answer, cold.answer(request_of("a", prompt_of(n)))) << n << " after " << r;
  }
}

/// Prompts of conversations: hints say where messages begin.
Request turn_of(const std::string& id, const std::vector<TokenId>& prompt, std::vector<int64_t> starts) {
  Request request = request_of(id, prompt, 4);
  request.cache_hints = std::move(starts);
  return request;
}

TEST_P(TinyPrefixCache, AStepSavesSeveralStatesOfSeveralPrompts) {
  for (const int64_t micro_batch : {0, 70}) {
    options_.micro_batch = micro_batch;
    Cluster cluster(options_);
    Engine engine(options_, cluster);
    const std::vector<TokenId> text = random_tokens(800, 3), other = random_tokens(700, 4);
    Server warm(engine, engine.scheduler_options());
    const std::vector<Request> first = {turn_of("a", text, {0, 130, 400, 790}), turn_of("b", other, {0, 70, 200, 333})};
    const auto together = warm.answer(first);
    EXPECT_EQ(warm.max_saved(), 3);
    EXPECT_EQ(warm.load().prefix_cache.num_snapshots, 6);
    Server cold(engine, without_cache(engine.scheduler_options()));
    EXPECT_EQ(together.at("a"), cold.answer(first[0]));
    EXPECT_EQ(together.at("b"), cold.answer(first[1]));
    std::map<int64_t, std::vector<TokenId>> prompts;  // by where they go on
    for (const int64_t place : {128, 384, 768}) prompts[place] = branch(text, place + 5, 790, 7);
    std::map<int64_t, Answer> answers;
    Server again(engine, engine.scheduler_options());
    again.answer(first);
    for (const auto& [place, prompt] : prompts) {
      answers[place] = again.answer(request_of("c", prompt));
      EXPECT_EQ(answers[place].num_cached, place);
    }
    Server alone(engine, without_cache(engine.scheduler_options()));
    for (const auto& [place, prompt] : prompts) EXPECT_EQ(answers[place], alone.answer(request_of("c", prompt))) << place;
  }
}

TEST_P(TinyPrefixCache, WhereTwoPartTheNextOneGoesOn) {
  Cluster cluster(options_);
  Engine engine(options_, cluster);
  const std::vector<TokenId> text = random_tokens(500, 5);
  Server warm(engine, engine.scheduler_options());
  std::vector<Answer> answers;
  const auto prompt_of = [&](uint32_t i) { return branch(text, 300, 450, 10 + i); };
  for (uint32_t i = 0; i < 3; ++i) answers.push_back(warm.answer(request_of("a", prompt_of(i))));
  EXPECT_EQ(answers[0].num_cached, 0);
  EXPECT_EQ(answers[1].num_cached, 0) << "there was no snapshot";
  EXPECT_EQ(answers[2].num_cached, 256);
  const PrefixCacheLoad load = warm.load().prefix_cache;
  EXPECT_EQ(load.misses[static_cast<std::size_t>(CacheMiss::kNoSnapshot)], 1);
  Server cold(engine, without_cache(engine.scheduler_options()));
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(answers[i], cold.answer(request_of("a", prompt_of(i)))) << i;
}

TEST_P(TinyPrefixCache, OtherSaltsAndPromptLogprobsShareNothing) {
  Cluster cluster(options_);
  Engine engine(options_, cluster);
  const std::vector<TokenId> text = random_tokens(200, 6);
  Server warm(engine, engine.scheduler_options());
  const auto salted = [&](std::byte salt) {
    Request request = request_of("a", text);
    request.unit_contents = {{.unit = 0, .digest = {salt}}};
    return request;
  };
  const Answer plain = warm.answer(request_of("a", text));
  Answer answer = warm.answer(salted(std::byte{1}));
  EXPECT_EQ(answer.num_cached, 0);
  EXPECT_EQ(answer, plain);
  EXPECT_EQ(warm.load().prefix_cache.misses[static_cast<std::size_t>(CacheMiss::kSalt)], 1);
  EXPECT_EQ(warm.answer(salted(std::byte{2})).num_cached, 0);
  answer = warm.answer(salted(std::byte{1}));
  EXPECT_EQ(answer.num_cached, 192);
  EXPECT_EQ(answer, plain);
}

/// Few blocks and snapshots, families of prompts, several at once, some aborted: whatever is evicted, preempted, saved or
/// shared, everybody gets the answer that it gets alone.
SchedulerLoad run_storm(Engine& engine, SchedulerOptions limits, int64_t num_rounds) {
  std::mt19937 random(9);
  std::vector<std::vector<TokenId>> families;
  for (uint32_t i = 0; i < 3; ++i) families.push_back(random_tokens(330, 20 + i));
  std::vector<Request> all;
  for (uint32_t i = 0; i < static_cast<uint32_t>(4 * num_rounds); ++i) {
    const int64_t shared = static_cast<int64_t>(random() % 330), length = shared + 1 + static_cast<int64_t>(random() % 70);
    all.push_back(request_of(std::to_string(i), branch(families[random() % 3], shared, length, 100 + i), 20));
    if (random() % 4 == 0) all.back().cache_hints = {shared / 2, shared};
    all.back().sampling.temperature = i % 2 == 0 ? 0.0F : 0.8F;
    all.back().sampling.seed = i;
  }
  std::map<std::string, Answer> answers;
  Server warm(engine, limits);
  for (auto first = all.begin(); first != all.end(); first += 4) {
    const bool aborts = random() % 3 == 0;
    Request victim = request_of("victim", branch(families[0], 200, 320, static_cast<uint32_t>(random())), 20);
    Sequence* aborted = aborts ? warm.scheduler().add(std::move(victim), {}) : nullptr;
    int64_t steps_left = static_cast<int64_t>(random() % 3);
    warm.before_step = [&] {
      if (aborted == nullptr || steps_left-- > 0) return;
      warm.scheduler().abort(*aborted);
      aborted = nullptr;
    };
    answers.merge(warm.answer({first, first + 4}));
  }
  const SchedulerLoad load = warm.load();
  EXPECT_EQ(load.num_used_blocks, 0);
  EXPECT_EQ(load.num_used_swap_blocks, 0);
  EXPECT_GT(load.prefix_cache.num_cached_tokens, 0);
  EXPECT_GT(load.prefix_cache.num_evicted_units, 0);
  EXPECT_GT(load.prefix_cache.num_evicted_snapshots, 0);
  Server cold(engine, without_cache(engine.scheduler_options()));
  for (const Request& request : all) EXPECT_EQ(answers.at(request.id), cold.answer(request)) << "request " << request.id;
  return load;
}

TEST_P(TinyPrefixCache, StormsOfEvictionsChangeNothing) {
  Cluster cluster(options_);
  Engine engine(options_, cluster);
  SchedulerOptions limits = engine.scheduler_options();
  limits.num_blocks = 60;  // of 16 tokens: four prompts share them
  for (const bool has_swap_space : {true, false}) {
    limits.num_swap_blocks = has_swap_space ? 20 : 0;
    limits.prefix_cache.num_snapshots = has_swap_space ? 3 : 2;
    EXPECT_GT(run_storm(engine, limits, 12).num_preemptions, 0);
  }
}

/// With a file behind it, of so many pages.
SchedulerOptions little_memory(SchedulerOptions limits, int64_t num_blocks, int64_t num_snapshots, int64_t num_pages) {
  limits.num_blocks = num_blocks;
  limits.prefix_cache.num_snapshots = num_snapshots;
  limits.prefix_cache.file.num_pages = num_pages;
  return limits;
}

TEST_P(TinyPrefixCache, WhatMemoryHasNoRoomForComesBackFromTheFile) {
  options_.prefix_file_bytes = int64_t{16} << 20;
  options_.prefix_file_folder = dir_.path();
  Cluster cluster(options_);
  Engine engine(options_, cluster);
  const SchedulerOptions all = engine.scheduler_options();
  std::vector<std::vector<TokenId>> texts;
  for (uint32_t i = 0; i < 3; ++i) texts.push_back(random_tokens(600, 50 + i));
  std::vector<std::pair<Request, Answer>> turns;
  {
    Server warm(engine, little_memory(all, 40, 2, all.prefix_cache.file.num_pages));  // for one conversation at a time
    int64_t num_cached = 0, previous = 64;
    for (const int64_t length : {130, 131, 193, 290, 383, 385, 450}) {
      for (std::size_t i = 0; i < 3; ++i) {
        const int64_t num_tokens = length + static_cast<int64_t>(i);
        const std::vector<TokenId> prompt(texts[i].begin(), texts[i].begin() + num_tokens);
        const Request request = turn_of("a", prompt, {0, previous + static_cast<int64_t>(i), num_tokens - 3});
        turns.emplace_back(request, warm.answer(request));
        num_cached += turns.back().second.num_cached;
        EXPECT_EQ(turns.back().second.num_cached > 0, length > 130);
      }
      previous = length;
    }
    const PrefixCacheLoad load = warm.load().prefix_cache;
    EXPECT_EQ(load.num_cached_tokens, num_cached);
    EXPECT_GE(load.num_file_hits, 3 * 5) << "of 18 turns that are not the first";
    EXPECT_GT(load.num_file_tokens, 2000);
    EXPECT_GT(load.file_read_bytes, 0);
    EXPECT_GT(load.file_bytes, 0);
    EXPECT_LE(load.file_bytes, load.file_capacity_bytes);
    for (const int64_t num_dropped : load.file_drops) EXPECT_EQ(num_dropped, 0);
  }
  Server cold(engine, without_cache(all));
  for (const auto& [request, answer] : turns) EXPECT_EQ(answer, cold.answer(request)) << request.prompt.size() << " tokens";
}

TEST_P(TinyPrefixCache, StormsWithASmallFileChangeNothing) {
  options_.prefix_file_bytes = int64_t{16} << 20;
  options_.prefix_file_folder = dir_.path();
  Cluster cluster(options_);
  Engine engine(options_, cluster);
  const SchedulerOptions all = engine.scheduler_options();
  const int64_t num_pages = 5 * (all.prefix_cache.file.unit_pages + all.prefix_cache.file.snapshot_pages);
  const SchedulerLoad load = run_storm(engine, little_memory(all, 60, 2, num_pages), 8);
  EXPECT_GT(load.prefix_cache.num_file_hits, 0);
  EXPECT_GT(load.prefix_cache.file_drops[static_cast<std::size_t>(FileDrop::kReplaced)], 0);
  EXPECT_EQ(load.prefix_cache.file_drops[static_cast<std::size_t>(FileDrop::kUnreadable)], 0);
}

/// A checkpoint whose MTP layer guesses.
EngineOptions drafting_options(const DeviceChoice& device) {
  EngineOptions options = engine_options(test::source_folder() / "tests" / "golden" / "fp8_qwen3_5_moe");
  options.device = device;
  options.dtype = DType::kBF16;
  options.max_context = 512;
  options.speculation = {Speculation::Source::kMtp, 3};
  return options;
}

TEST(PrefixCacheWithDrafts, TokensAndLogitsAreTheSame) {
  const EngineOptions options = drafting_options({});
  Cluster cluster(options);
  Engine engine(options, cluster);
  engine.set_drafting(Drafting::kOff);
  std::vector<std::vector<TokenId>> prompts;
  const std::vector<TokenId> text = random_tokens(330, 30);
  for (uint32_t i = 0; i < 6; ++i) prompts.push_back(branch(text, 50 * (i + 1), 330 - i, 40 + i));
  Server cold(engine, without_cache(engine.scheduler_options()));
  std::map<std::string, Answer> expected;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    expected[std::to_string(i)] = cold.answer(request_of(std::to_string(i), prompts[i], 24));
  engine.set_drafting(Drafting::kOn);
  for (const bool are_together : {false, true}) {
    Server warm(engine, engine.scheduler_options());
    std::vector<Request> requests;
    for (std::size_t i = 0; i < prompts.size(); ++i) requests.push_back(request_of(std::to_string(i), prompts[i], 24));
    std::map<std::string, Answer> answers;
    for (int round = 0; round < 2; ++round) {
      if (are_together) {
        answers = warm.answer(requests);
      } else {
        for (const Request& request : requests) answers[request.id] = warm.answer(request);
      }
      EXPECT_EQ(answers, expected) << "round " << round << (are_together ? ", together" : "");
    }
    EXPECT_GT(warm.load().prefix_cache.num_cached_tokens, 1000);
  }
}

TEST(PrefixCacheWithDrafts, TheFileHoldsWhatTheMtpLayerKnows) {
  const test::TempFolder dir;
  EngineOptions options = drafting_options({});
  options.prefix_file_bytes = int64_t{64} << 20;
  options.prefix_file_folder = dir.path();
  Cluster cluster(options);
  Engine engine(options, cluster);
  engine.set_drafting(Drafting::kOff);
  Server cold(engine, without_cache(engine.scheduler_options()));
  std::vector<Request> requests;
  std::vector<Answer> expected;
  for (uint32_t i = 0; i < 3; ++i) {
    requests.push_back(request_of("a", random_tokens(270 + i, 60 + i), 12));
    expected.push_back(cold.answer(requests.back()));
  }
  engine.set_drafting(Drafting::kOn);
  Server warm(engine, little_memory(engine.scheduler_options(), 24, 1, engine.scheduler_options().prefix_cache.file.num_pages));
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(warm.answer(requests[i]), expected[i]) << i << " in round " << round;
  }
  EXPECT_EQ(warm.load().prefix_cache.num_file_hits, 6);
}

TEST(PrefixCacheOnVulkan, TokensAndLogitsAreTheSame) {
  if (!test::has_vulkan_device()) GTEST_SKIP() << "no Vulkan device";
  const test::TempFolder dir;
  EngineOptions options = drafting_options({DeviceChoice::Kind::kVulkan, std::nullopt});
  options.prefix_file_bytes = int64_t{64} << 20;
  options.prefix_file_folder = dir.path();
  Cluster cluster(options);
  Engine engine(options, cluster);
  const std::vector<TokenId> text = random_tokens(70, 31);
  Server cold(engine, without_cache(engine.scheduler_options()));
  const std::vector<std::vector<TokenId>> prompts = {text, branch(text, 66, 72, 1)};  // little, since the CPU may emulate it
  std::vector<Answer> expected;
  for (const std::vector<TokenId>& prompt : prompts) expected.push_back(cold.answer(request_of("a", prompt, 2)));
  Server warm(engine, engine.scheduler_options());
  for (std::size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(warm.answer(request_of("a", prompts[i], 2)), expected[i]) << i;
  EXPECT_EQ(warm.load().prefix_cache.num_cached_tokens, kUnit);
  Server little(engine,
                little_memory(engine.scheduler_options(), 6, 1, engine.scheduler_options().prefix_cache.file.num_pages));
  for (const TokenId first : {text[0], TokenId{2}, text[0]}) {
    std::vector<TokenId> prompt = text;
    prompt[0] = first;
    const Answer answer = little.answer(request_of("a", prompt, 2));
    EXPECT_EQ(answer == expected[0], first == text[0]);
  }
  EXPECT_EQ(little.load().prefix_cache.num_file_hits, 1);
}

}  // namespace
}  // namespace ferry
