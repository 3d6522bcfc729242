#include "runtime/options/generate_options.h"

#include <gtest/gtest.h>

#include "tests/runtime/options/command_lines.h"

namespace ferry {
namespace {

using test::accept;
using test::line;
using test::refuse;

TEST(Options, Generate) {
  const Options options = accept({"generate", "--model",       "m",
                                  "--chat",   "hello",         "--max-tokens",
                                  "9",        "--temperature", "0.5",
                                  "--top-p",  "0.25",          "--top-k",
                                  "40",       "--seed",        "18446744073709551615",
                                  "--stop",   "a b",           "--stop",
                                  "\n",       "--ignore-eos",  "--thinking",
                                  "off",      "--json"});
  EXPECT_EQ(options.command, Command::kGenerate);
  EXPECT_FALSE(options.generate.prompt.has_value());
  EXPECT_EQ(options.generate.chat, "hello");
  const SamplingParams& sampling = options.generate.sampling;
  EXPECT_EQ(sampling.max_tokens, 9);
  EXPECT_EQ(sampling.temperature, 0.5F);
  EXPECT_EQ(sampling.top_p, 0.25F);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_EQ(sampling.seed, ~uint64_t{0});
  EXPECT_EQ(sampling.stop, (std::vector<std::string>{"a b", "\n"}));
  EXPECT_TRUE(sampling.ignore_eos);
  EXPECT_EQ(options.generate.thinking, GenerateOptions::ThinkingMode::kOff);
  EXPECT_TRUE(options.generate.json);
}

TEST(Options, GeneratePenalties) {
  const SamplingParams sampling = accept(line("generate", {"--min-p", "0.25", "--repetition-penalty", "1.5",
                                                           "--presence-penalty", "-0.5", "--frequency-penalty", "2"}))
                                      .generate.sampling;
  EXPECT_EQ(sampling.min_p, 0.25F);
  EXPECT_EQ(sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(sampling.presence_penalty, -0.5F);
  EXPECT_EQ(sampling.frequency_penalty, 2.0F);
  refuse(line("generate", {"--min-p", "1.5"}), {"--min-p", "'1.5'", "0 to 1"});
  refuse(line("generate", {"--repetition-penalty", "0"}), {"--repetition-penalty", "'0'"});
  refuse(line("generate", {"--presence-penalty", "2.5"}), {"--presence-penalty", "'2.5'", "-2 to 2"});
  refuse(line("generate", {"--frequency-penalty", "-3"}), {"--frequency-penalty", "'-3'", "-2 to 2"});
}

TEST(Options, GenerateDefaultsAreThoseOfSamplingParams) {
  const GenerateOptions generate = accept(line("generate", {})).generate;
  EXPECT_EQ(generate.prompt, "text");
  EXPECT_EQ(generate.sampling.max_tokens, 256);
  EXPECT_EQ(generate.sampling.temperature, 0.0F);
  EXPECT_EQ(generate.sampling.top_p, 1.0F);
  EXPECT_EQ(generate.sampling.top_k, 0);
  EXPECT_EQ(generate.sampling.seed, 0U);
  EXPECT_EQ(generate.sampling.min_p, 0.0F);
  EXPECT_EQ(generate.sampling.repetition_penalty, 1.0F);
  EXPECT_EQ(generate.sampling.presence_penalty, 0.0F);
  EXPECT_EQ(generate.sampling.frequency_penalty, 0.0F);
  EXPECT_TRUE(generate.sampling.stop.empty());
  EXPECT_FALSE(generate.sampling.ignore_eos);
  EXPECT_EQ(generate.thinking, GenerateOptions::ThinkingMode::kDefault);
  EXPECT_FALSE(generate.json);
}

TEST(Options, GenerateNeedsOneInput) {
  refuse({"generate", "--model", "m"}, {"--prompt", "--chat", "--token-ids", "required"});
  refuse({"generate", "--model", "m", "--prompt", "a", "--chat", "b"}, {"--prompt", "--chat", "--token-ids", "2 were given"});
  refuse({"generate", "--model", "m", "--prompt", "a", "--token-ids", "3"}, {"--prompt", "--token-ids"});
  EXPECT_EQ(accept({"generate", "--model", "m", "--prompt", ""}).generate.prompt, "");
}

}  // namespace
}  // namespace ferry
