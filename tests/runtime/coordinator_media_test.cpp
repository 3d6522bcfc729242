#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <thread>

#include "runtime/coordinator.h"
#include "runtime/engine.h"
#include "tests/runtime/vision/png_file.h"
#include "tests/support/completion.h"
#include "tests/support/eventually.h"
#include "tests/support/expect_error.h"

// Prompts with pictures through engine and coordinator, with the tower of a golden.

namespace ferry {
namespace {

using nlohmann::json;
using test::bytes_of;
using test::complete_all;
using test::Completion;
using test::golden_folder;
using test::make_request;

constexpr TokenId kImageId = 252;

class CoordinatorMediaTest : public testing::Test {
 protected:
  CoordinatorMediaTest() {
    options_.model = golden_folder("qwen3_5_vl");
    options_.threads = 2;
    options_.memory_bytes = int64_t{64} << 20;
    options_.max_seqs = 4;
    options_.media.is_wanted = true;
    options_.peer_timeout_s = 3600;  // a test holds the engine's thread
  }
  void start() {
    cluster_.emplace(options_);
    engine_.emplace(options_, *cluster_);
    coordinator_.emplace(*engine_);
  }
  Request request_of(const std::vector<TokenId>& ids, const std::vector<std::string>& files, int32_t max_tokens) {
    const MediaIntake& intake = coordinator_->require_media();
    std::vector<std::shared_ptr<const Medium>> media;
    for (const std::string& file : files) media.push_back(intake.read_picture(bytes_of(file), "picture"));
    MediaPrompt prompt = intake.place(ids, media);
    Request request = make_request(std::move(prompt.ids), max_tokens);
    request.media = std::move(prompt.media);
    request.sampling.ignore_eos = true;
    return request;
  }

  EngineOptions options_;
  std::optional<Cluster> cluster_;
  std::optional<Engine> engine_;
  std::optional<Coordinator> coordinator_;
};

/// The golden's prompts with pictures, all at once and twice, with and without what the first time left.
TEST_F(CoordinatorMediaTest, AnswersAreTheReferences) {
  for (const int64_t prefill_chunk : {2048, 8}) {
    options_.prefill_chunk = prefill_chunk;
    start();
    EXPECT_TRUE(engine_->model_info().takes_media);
    std::vector<Request> requests;
    std::vector<std::vector<TokenId>> expected;
    const json golden = test::read_golden(golden_folder("qwen3_5_vl") / "golden.json");
    for (const json& c : golden["vision"]) {
      if (!c.contains("image")) continue;
      auto ids = c["ids"].get<std::vector<TokenId>>();
      const auto repeated = std::unique(ids.begin(), ids.end(), [](TokenId a, TokenId b) { return a == kImageId && a == b; });
      ids.erase(repeated, ids.end());
      expected.push_back(c["greedy"].get<std::vector<TokenId>>());
      requests.push_back(request_of(ids, {test::read_file(golden_folder("qwen3_5_vl") / c["image"].get<std::string>())},
                                    static_cast<int32_t>(expected.back().size())));
      EXPECT_EQ(c["ids"].get<std::vector<TokenId>>(), requests.back().prompt);
    }
    ASSERT_GE(requests.size(), 3U);
    for (int time = 0; time < 2; ++time) {
      const auto completions = complete_all(*coordinator_, requests);
      for (std::size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(expected[i], completions[i]->tokens) << "picture " << i << ", chunk " << prefill_chunk;
    }
    coordinator_.reset();
    engine_.reset();
  }
}

/// Holds the engine's thread in a sink until told otherwise.
struct Hold {
  void enter() {
    entered.set_value();
    left.get_future().wait();
  }
  std::promise<void> entered, left;
};

// It is aborted in the middle of its pictures, and nobody else has any: they are not kept for the next who does.
TEST_F(CoordinatorMediaTest, PicturesOfWhoLeftAreLetGo) {
  start();
  std::vector<std::string> files;
  for (int64_t i = 0; i < 40; ++i) files.push_back(test::png_of(test::drawn_picture(256, 256, i)));  // 16 of them make a slice
  Request pictures = request_of(std::vector<TokenId>(files.size(), kImageId), files, 1);
  const std::weak_ptr<const PromptMedia> media = pictures.media;
  Hold second, fourth;
  Completion text, waiting;
  Request request = make_request({20, 21}, 20);
  request.sampling.ignore_eos = true;
  coordinator_->submit(std::move(request), text.sink([&](const Completion& c) {
    if (c.tokens.size() == 2) second.enter();
    if (c.tokens.size() == 4) fourth.enter();
  }));
  second.entered.get_future().wait();
  const RequestNumber number = coordinator_->submit(std::move(pictures), waiting.sink());
  second.left.set_value();
  fourth.entered.get_future().wait();
  EXPECT_FALSE(waiting.is_done());
  EXPECT_TRUE(coordinator_->abort(number));
  fourth.left.set_value();
  EXPECT_EQ(FinishReason::kAborted, waiting.wait().last.finish_reason);
  EXPECT_EQ(20U, text.wait().tokens.size());
  eventually([&] { return media.expired(); }, "the pictures to go");
}

TEST_F(CoordinatorMediaTest, TheOptionThatAsksForTooMuchMemoryIsBlamed) {
  const auto refuse = [&](const MediaOptions& media, const std::string& option) {
    options_.media = media;
    test::expect_error([&] { start(); }, ErrorCode::kResourceExhausted, {option + " is 1024 GiB", "available: "});
  };
  constexpr int64_t kTiB = int64_t{1} << 40;
  refuse({.is_wanted = true, .cache_bytes = kTiB}, "--picture-cache");
  refuse({.is_wanted = true, .open_bytes = kTiB}, "--picture-memory");
}

TEST_F(CoordinatorMediaTest, WhatPicturesTakeIsDescribed) {
  options_.media.cache_bytes = int64_t{17} << 20;
  start();
  test::expect_one_line_with(engine_->describe_media(),
                             {"of weights", "17 MiB of cache (--picture-cache)", "1024 MiB of pixels"});
  options_.media.max_tokens = 0;
  coordinator_.reset();
  start();
  EXPECT_EQ("none, --picture-tokens is 0; allowed with pictures: 1 and more", engine_->describe_media());
}

TEST_F(CoordinatorMediaTest, WithoutRoomForPicturesThereAreNone) {
  const auto expect_none = [&](const std::vector<std::string>& parts) {
    start();
    EXPECT_FALSE(engine_->model_info().takes_media);
    test::expect_error([&] { coordinator_->require_media(); }, ErrorCode::kFailedPrecondition, parts);
    EXPECT_EQ(1U, complete_all(*coordinator_, {make_request({20}, 1)})[0]->tokens.size());
    coordinator_.reset();
    engine_.reset();
  };
  options_.max_context = 3;
  expect_none({"pictures and videos cannot be taken", "room for 3 tokens", "smallest pictures have 4"});
  options_.max_context.reset();
  options_.media.max_tokens = 0;
  expect_none({"--picture-tokens is 0"});
  options_.media = {.is_wanted = false};
  expect_none({"this command takes none"});
  options_.media = {.is_wanted = true, .max_tokens = 3};
  test::expect_error([&] { start(); }, ErrorCode::kInvalidArgument, {"--picture-tokens is 3", "at least 4"});
}

}  // namespace
}  // namespace ferry
