#include "runtime/options/option_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>

#include "tests/runtime/options/command_lines.h"

namespace ferry {
namespace {

using test::accept;
using test::line;
using test::parse;
using test::refuse;

const std::vector<std::string> kCommands = {"serve",    "generate", "dump",     "bench",   "batch", "worker", "front",
                                            "quantize", "inspect",  "tokenize", "devices", "plan",  "top"};

std::string help_of(const std::string& command) { return parse({command, "--help"}).message; }

bool has_option(const std::string& help, const std::string& option) {
  return std::ranges::any_of(std::array{" ", "=", "\n", ","},
                             [&](const char* end) { return help.find(option + end) != std::string::npos; });
}

TEST(OptionWords, OffLeavesAnOptionOut) {
  const Options options = accept(line("serve", {"--elastic", "off", "--trace-sample=off", "--otlp-traces-endpoint", "off"}));
  EXPECT_EQ(options.engine.elastic.address, "");
  EXPECT_EQ(options.serve.archive.trace_sample, 0);
  EXPECT_EQ(options.serve.otlp_endpoint, "");
  EXPECT_FALSE(accept(line("serve", {"--tls-cert", "off", "--tls-key", "off"})).serve.access.tls_cert.has_filename());
}

TEST(OptionWords, OffIsZeroWhereThatMeansNone) {
  const Options options = accept(line("serve", {"--rebalance", "off", "--prefix-cache-disk", "off", "--speculate=off"}));
  EXPECT_EQ(options.engine.placement.rebalance_steps, 0);
  EXPECT_EQ(options.engine.prefix_file_bytes, 0);
  EXPECT_EQ(options.engine.speculation, Speculation{});
}

TEST(OptionWords, AutoIsAsNothingSaid) {
  const Options options = accept(line("serve", {"--dtype", "auto", "--threads", "auto", "--max-context=auto"}));
  EXPECT_FALSE(options.engine.dtype.has_value());
  EXPECT_EQ(options.engine.threads, 0);
  EXPECT_FALSE(options.engine.max_context.has_value());
}

TEST(OptionWords, OtherNamesOfTypes) {
  EXPECT_EQ(accept(line("serve", {"--dtype", "bfloat16"})).engine.dtype, DType::kBF16);
  EXPECT_EQ(accept(line("serve", {"--dtype=float32"})).engine.dtype, DType::kF32);
}

TEST(OptionWords, OtherCommandsAndValuesAreLeftAlone) {
  refuse({"tokenize", "--model", "m", "--text", "t", "--elastic", "off"}, {"--elastic"});
  EXPECT_EQ(accept({"generate", "--model", "m", "--prompt", "off"}).generate.prompt, "off");
  refuse(line("serve", {"--elastic", "of"}), {"--elastic"});
  refuse(line("serve", {"--threads", "off"}), {"--threads"});
}

/// A word for an option that no command has would never be read.
TEST(OptionWords, EachIsOfAnOptionThatThereIs) {
  std::string help;
  for (const std::string& command : kCommands) help += help_of(command);
  for (const OptionWord& word : option_words()) EXPECT_TRUE(has_option(help, word.option)) << word.option;
}

/// The name and help of each option of a command.
std::vector<std::string> entries_of(const std::string& command) {
  std::vector<std::string> entries;
  std::istringstream lines(help_of(command));
  for (std::string text; std::getline(lines, text);) {
    if (text.starts_with("  -"))
      entries.push_back(text.substr(2));
    else if (!entries.empty())
      entries.back() += " " + text;
  }
  return entries;
}

TEST(OptionWords, WhatIsAbsentByDefaultTakesOff) {
  std::set<std::string> can_be_off = {"--allowed-origin", "--served-model-name"};  // lists
  for (const OptionWord& word : option_words()) {
    if (word.word == std::string("off")) can_be_off.insert(word.option);
  }
  for (const std::string& command : kCommands) {
    for (const std::string& entry : entries_of(command)) {
      const bool is_absent = std::ranges::any_of(std::array{"default: none", "default: nowhere", "default: nothing",
                                                            "default: no bound", "default: no TLS", "default 0B"},
                                                 [&](const char* text) { return entry.find(text) != std::string::npos; });
      const std::string name = entry.substr(0, entry.find_first_of(" ,"));
      if (is_absent && entry.find(", or off") == std::string::npos) {
        EXPECT_TRUE(can_be_off.contains(name)) << command << " " << entry;
      }
    }
  }
}

}  // namespace
}  // namespace ferry
