#include "launch/bench_peers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace ferry {
namespace {

PeerSetup setup_of(const std::string& weights) {
  return {.model = "/models/a b",
          .weights = weights,
          .threads = 2,
          .is_on_device = false,
          .decode_tokens = 64,
          .decode_prompt = 32,
          .repetitions = 5};
}

std::string llama(const PeerSetup& setup, Phase phase, int64_t size, int64_t depth) {
  return peer_commands(setup, {.phase = phase, .size = size, .depth = depth}).front().commands.front();
}

TEST(BenchPeers, LlamaBenchMeasuresTheSameTokensAtTheSameDepth) {
  const PeerSetup setup = setup_of("w4a8");
  EXPECT_EQ(llama(setup, Phase::kPrefill, 512, 8192),
            "llama-bench -m model-Q4_0.gguf -t 2 -ngl 0 -r 5 -o jsonl -p 512 -n 0 -d 8192");
  EXPECT_EQ(llama(setup, Phase::kDecode, 1, 8192),
            "llama-bench -m model-Q4_0.gguf -t 2 -ngl 0 -r 5 -o jsonl -p 0 -n 64 -d 8224")
      << "Ferry's sequences have 32 tokens of their own behind the context";
}

TEST(BenchPeers, SeveralSequencesAreBatchedBenchsWithRoomForAll) {
  EXPECT_EQ(llama(setup_of("w8a8"), Phase::kDecode, 16, 0),
            "llama-batched-bench -m model-Q8_0.gguf -t 2 -ngl 0 -c 1536 -npp 32 -ntg 64 -npl 16 --output-format jsonl");
}

TEST(BenchPeers, ADeviceTakesAllLayers) {
  PeerSetup setup = setup_of("bf16");
  setup.is_on_device = true;
  EXPECT_NE(llama(setup, Phase::kPrefill, 1, 0).find("-ngl 99"), std::string::npos);
}

TEST(BenchPeers, VllmsFiguresAreDifferencesOfCallsThatDifferInWhatIsMeasured) {
  const auto deep = peer_commands(setup_of("bf16"), {.phase = Phase::kPrefill, .size = 512, .depth = 100});
  ASSERT_EQ(deep.size(), 2U);
  EXPECT_EQ(deep[1].engine, "vLLM");
  ASSERT_EQ(deep[1].commands.size(), 2U);
  EXPECT_NE(deep[1].commands[0].find("--model '/models/a b'"), std::string::npos) << "as a shell takes it";
  EXPECT_NE(deep[1].commands[0].find("--input-len 612 --output-len 1 "), std::string::npos) << deep[1].commands[0];
  EXPECT_NE(deep[1].commands[1].find("--input-len 100 --output-len 1 "), std::string::npos) << deep[1].commands[1];
  EXPECT_NE(deep[1].commands[0].find("--no-enable-prefix-caching"), std::string::npos);
  const auto decode = peer_commands(setup_of("bf16"), {.phase = Phase::kDecode, .size = 4, .depth = 0});
  EXPECT_NE(decode[1].commands[0].find("--batch-size 4 --input-len 32 --output-len 65 "), std::string::npos);
  EXPECT_NE(decode[1].commands[1].find("--batch-size 4 --input-len 32 --output-len 1 "), std::string::npos);
  EXPECT_TRUE(decode[1].figure.starts_with("256 / ")) << "4 sequences of 64 tokens";
  EXPECT_EQ(peer_commands(setup_of("w4a8"), {.phase = Phase::kDecode, .size = 4, .depth = 0}).size(), 1U)
      << "it cannot read Ferry's codes";
}

TEST(BenchPeers, TheBlockSaysHowTheFileIsMade) {
  const std::vector<std::string> lines = peer_lines(setup_of("w8a8"), {});
  const auto has = [&](const std::string& line) { return std::find(lines.begin(), lines.end(), line) != lines.end(); };
  EXPECT_TRUE(has("convert_hf_to_gguf.py CHECKPOINT --outtype bf16 --outfile model-BF16.gguf"));
  EXPECT_TRUE(has("llama-quantize model-BF16.gguf model-Q8_0.gguf Q8_0"));
  const nlohmann::ordered_json object =
      peers_json(setup_of("bf16"), {{.what = {.phase = Phase::kPrefill, .size = 7, .depth = 0},
                                     .tokens_per_s = {},
                                     .work = {},
                                     .roofs = {},
                                     .warm_up = {},
                                     .transport = {}}});
  EXPECT_EQ(object["gguf"].size(), 1U);
  ASSERT_EQ(object["rows"].size(), 2U);
  EXPECT_EQ(object["rows"][0]["row"], "prefill 7");
}

}  // namespace
}  // namespace ferry
