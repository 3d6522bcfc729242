#include "runtime/options/options.h"

#include <gtest/gtest.h>

#include "runtime/version.h"
#include "tests/runtime/options/command_lines.h"

namespace ferry {
namespace {

using test::accept;
using test::line;
using test::parse;
using test::refuse;

TEST(Options, TraceCommandsTakeFolders) {
  using Action = TraceOptions::Action;
  const auto trace = [](std::vector<const char*> words) {
    words.insert(words.begin(), {"ferry", "trace"});
    return parse_options(static_cast<int>(words.size()), words.data());
  };
  const ParseResult merge = trace({"merge", "a", "b", "c", "--out", "d"});
  ASSERT_TRUE(merge.options.has_value()) << merge.message;
  EXPECT_EQ(merge.options->command, Command::kTrace);
  EXPECT_EQ(merge.options->trace.action, Action::kMerge);
  EXPECT_EQ(merge.options->trace.captures, (std::vector<std::filesystem::path>{"a", "b", "c"}));
  EXPECT_EQ(merge.options->trace.out, "d");
  EXPECT_EQ(trace({"diff", "a", "b"}).options->trace.action, Action::kDiff);
  EXPECT_EQ(trace({"report", "a"}).options->trace.action, Action::kReport);
  EXPECT_EQ(trace({"export", "a"}).options->trace.action, Action::kExport);
  EXPECT_EQ(trace({"export", "a", "--otlp", "b"}).options->trace.out, "b");
  for (const auto& words :
       std::vector<std::vector<const char*>>{{}, {"report"}, {"diff", "a"}, {"merge", "a", "b"}, {"show", "a"}}) {
    const ParseResult result = trace(words);
    EXPECT_FALSE(result.options.has_value());
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.message.find('\n'), std::string::npos) << result.message;
  }
}

TEST(Options, AnArchiveIsAskedForATime) {
  const TraceOptions trace = accept({"trace", "archive", "d", "--at", "2026-11-27T03:12:05", "--phase", "decode", "--slowest",
                                     "9", "--json", "--out", "c"})
                                 .trace;
  EXPECT_EQ(trace.action, TraceOptions::Action::kArchive);
  EXPECT_EQ(trace.captures, std::vector<std::filesystem::path>{"d"});
  EXPECT_EQ(trace.archive.at, "2026-11-27T03:12:05");
  EXPECT_EQ(trace.archive.phase, "decode");
  EXPECT_EQ(trace.archive.num_slowest, 9);
  EXPECT_TRUE(trace.json);
  EXPECT_EQ(trace.out, "c");
  refuse({"trace"}, {"a command is missing behind ferry trace; allowed: report, export", "(ferry trace --help)"});
  refuse({"trace", "bogus"}, {"'bogus' is not a command behind ferry trace; allowed: report, export"});
  refuse({"trace", "archive"}, {"DIR"});
  refuse({"trace", "archive", "d", "--at", "3 o'clock"}, {"--at", "'3 o'clock'", "HH:MM[:SS]"});
  refuse({"trace", "archive", "d", "--at", "2400-03-30T12:00"}, {"--at", "'2400-03-30T12:00'", "1970 to 2200"});
  refuse({"trace", "archive", "d", "--last", "1w"}, {"--last", "'1w'", "2d"});
  refuse({"trace", "archive", "d", "--at", "03:12", "--last", "1h"}, {"--at", "--last"});
  refuse({"trace", "archive", "d", "--phase", "sleep"}, {"--phase", "'sleep'", "decode"});
  refuse({"trace", "archive", "d", "--slowest", "65"}, {"--slowest", "'65'", "1 to 64"});
}

TEST(Options, AReportTakesStepsOfItsPage) {
  const auto steps = [](const char* text) {
    const TraceOptions trace = accept({"trace", "report", "a", "--steps", text}).trace;
    return std::pair(trace.first_step, trace.last_step);
  };
  EXPECT_EQ(steps("7"), std::pair(7U, 7U));
  EXPECT_EQ(steps("0..4294967295"), std::pair(0U, 4294967295U));
  const TraceOptions none = accept({"trace", "report", "a"}).trace;
  EXPECT_GT(none.first_step, none.last_step);
  for (const char* text : {"", "x", "-1", "3..", "..3", "5..4", "1...3", "1..4294967296", "1,2"})
    refuse({"trace", "report", "a", "--steps", text},
           {"--steps: '" + std::string(text) + "'; allowed: a step N, or steps A..B with A at most B"});
}

TEST(Options, TooFewFoldersOrTooMany) {
  EXPECT_NE(parse({"--help"}).message.find("report, export, diff, verify, merge, archive, routing"), std::string::npos);
  refuse({"trace", "export", "a", "--otlp", ""}, {"--otlp", "''", "a file, or http[s]://HOST[:PORT][/PATH]"});
  refuse({"trace", "export", "a", "--otlp="}, {"--otlp: a value is missing"});
  refuse({"trace", "diff", "a"}, {"BEFORE AFTER: 1 given; allowed: at least 2"});
  refuse({"trace", "merge", "a", "--out", "c"}, {"DIRS: 1 given; allowed: at least 2"});
  refuse({"trace", "diff", "a", "b", "c"}, {"BEFORE AFTER: 3 given; allowed: at most 2"});
  refuse({"trace", "report", "a", "b"}, {"DIR: given 2 times; allowed: once"});
}

TEST(Options, APlanTakesWhatChangesARun) {
  const Options plan = accept({"plan", "--model", "m", "--measure", "--kv-cache-dtype", "int8", "--lm-head-screen", "-d",
                               "0,8192", "--prefill-chunk", "512", "--kernels", "avx2", "--matmul", "avx2", "--threads", "3"});
  EXPECT_EQ(plan.engine.kv_cache_dtype, DType::kI8);
  EXPECT_TRUE(plan.engine.lm_head_screen);
  EXPECT_EQ(plan.plan.depths, (std::vector<int64_t>{0, 8192}));
  EXPECT_EQ(plan.engine.prefill_chunk, 512);
  EXPECT_EQ(plan.engine.kernels + plan.engine.matmul, "avx2avx2");
  EXPECT_EQ(plan.engine.threads, 3);
  EXPECT_EQ(accept({"plan", "--model", "m", "--measure"}).plan.depths, std::vector<int64_t>{0});
}

TEST(Options, APlanIgnoresNothingThatIsAskedFor) {
  for (const char* option : {"--threads", "--kernels", "--matmul"}) {
    const std::string value = option == std::string("--threads") ? "2" : "avx2";
    refuse({"plan", "--model", "m", "--hosts", "h", option, value}, {option, "--measure"});
  }
  refuse({"plan", "--model", "m", "--hosts", "h", "--save", "s"}, {"--save", "--measure"});
  refuse({"plan", "--model", "m", "--hosts", "h", "--trace", "t", "--skew", "0.5"}, {"--skew", "--trace"});
  refuse({"plan", "--model", "m", "--hosts", "h", "--prefill-chunk", "100"}, {"--prefill-chunk", "multiple of 64"});
  refuse({"plan", "--model", "m", "--hosts", "h", "-d", "-1"}, {"-d"});
}

TEST(Options, AnEmptyArgumentIsRefused) {
  for (const std::string command : {"generate", "serve", "bench", "dump", "quantize", "trace"}) {
    refuse({command, "", "--model", "m"}, {});
    refuse({command, "--model", "m", "", "--threads", "1", ""}, {});
  }
  refuse({"generate", "--model", "m", "--prompt", "a", "x", ""}, {"not expected: 'x', ''"});
  refuse({"", "generate", "--model", "m", "--prompt", "a"}, {"not expected: ''"});
  refuse({""}, {"'' is not a command"});
}

TEST(Options, TokenIds) {
  EXPECT_EQ(accept({"generate", "--model", "m", "--token-ids", "3, 0,2147483647"}).generate.token_ids,
            (std::vector<TokenId>{3, 0, 2147483647}));
  for (const std::string text : {"", "1,,2", "1,2,", "a", "1 2", "-1", "1.5", "2147483648", "0x10", "+3"}) {
    refuse({"generate", "--model", "m", "--token-ids", text}, {"--token-ids", "allowed: integers from 0, such as 1,2,3"});
    refuse({"dump", "--model", "m", "--out", "o", "--token-ids", text}, {"--token-ids", "allowed: integers from 0"});
  }
}

TEST(Options, Dump) {
  const DumpOptions dump = accept({"dump", "--model", "m", "--token-ids", "5", "--out", "a/b.safetensors", "--taps"}).dump;
  EXPECT_EQ(dump.token_ids, std::vector<TokenId>{5});
  EXPECT_EQ(dump.out, "a/b.safetensors");
  EXPECT_TRUE(dump.taps);
  EXPECT_FALSE(accept(line("dump", {})).dump.taps);
  refuse({"dump", "--model", "m", "--token-ids", "5"}, {"--out", "required"});
  refuse({"dump", "--model", "m", "--out", "o"}, {"--token-ids", "required"});
}

TEST(Options, Quantize) {
  const Options options = accept({"quantize", "--model", "m", "--quantize", "experts=w4a8", "--out", "o", "--threads", "3"});
  EXPECT_EQ(options.command, Command::kQuantize);
  EXPECT_EQ(options.engine.model, "m");
  EXPECT_EQ(options.engine.quantization, parse_quantization("experts=w4a8"));
  EXPECT_EQ(options.engine.threads, 3);
  EXPECT_EQ(options.quantize.out, "o");
  EXPECT_EQ(accept(line("serve", {})).engine.quantization, std::nullopt);
  EXPECT_EQ(accept(line("serve", {"--quantize", "none"})).engine.quantization, Quantization{});
  refuse({"quantize", "--model", "m", "--quantize", "none", "--out", "o"}, {"--quantize", "'none'", "w4a8"});
  refuse({"quantize", "--model", "m", "--quantize", "w5", "--out", "o"}, {"--quantize", "'w5'", "w4a8"});
  refuse({"quantize", "--model", "m", "--out", "o"}, {"--quantize"});
  refuse({"quantize", "--model", "m", "--quantize", "w8a8"}, {"--out"});
  refuse({"quantize", "--quantize", "w8a8", "--out", "o"}, {"--model"});
}

TEST(Options, AWrongWordGetsTheNearestRightOne) {
  refuse({"serve", "demo"}, {"not expected: 'demo' (did you mean --model demo?)"});
  refuse({"serve", "/"}, {"not expected: '/' (did you mean --model /?)"});
  refuse({"serve", "--modle", "demo"}, {"not expected: '--modle', 'demo' (did you mean --model?)"});
  refuse({"serve", "--model", "demo", "--max-seq=3"}, {"not expected: '--max-seq=3' (did you mean --max-seqs?)"});
  refuse({"serve", "--nothing-like-it"}, {"not expected: '--nothing-like-it'"});
  refuse({"serv", "--model", "demo"}, {"'serv' is not a command (did you mean 'serve'?); allowed: "});
  refuse({"trace", "reprot"}, {"'reprot' is not a command (did you mean 'report'?) behind ferry trace; allowed: report"});
}

TEST(Options, Inspect) {
  const Options options = accept({"inspect", "m", "--json"});
  EXPECT_EQ(options.command, Command::kInspect);
  EXPECT_EQ(options.engine.model, "m");
  EXPECT_TRUE(options.inspect.json);
  EXPECT_FALSE(options.inspect.verify);
  EXPECT_TRUE(accept({"inspect", "m", "--verify", "--json"}).inspect.verify);
  refuse({"inspect", "m", "--verify", "--workers", "2"}, {"--verify", "--workers"});
  refuse({"inspect"}, {"DIR", "required"});
  refuse({"inspect", "m", "n"}, {"not expected: 'n'"});
}

TEST(Options, Tokenize) {
  const Options options = accept({"tokenize", "--model", "m", "--ids", "1,2", "--json"});
  EXPECT_EQ(options.command, Command::kTokenize);
  EXPECT_EQ(options.engine.model, "m");
  EXPECT_EQ(options.tokenize.ids, (std::vector<TokenId>{1, 2}));
  EXPECT_TRUE(options.tokenize.json);
  EXPECT_EQ(accept({"tokenize", "--model", "m", "--text", ""}).tokenize.text, "");
  EXPECT_EQ(accept({"tokenize", "--model", "m", "--file", "f"}).tokenize.file, "f");
  EXPECT_EQ(accept({"tokenize", "--model", "m"}).tokenize.text, std::nullopt);
  refuse({"tokenize", "--model", "m", "--text", "a", "--file", "f"}, {"at most one of --text, --file, --ids", "2 were given"});
  refuse({"tokenize", "--text", "a"}, {"--model"});
  EXPECT_FALSE(options.tokenize.bare);
  EXPECT_TRUE(accept({"tokenize", "--model", "m", "--text", "a", "--bare"}).tokenize.bare);
  refuse({"tokenize", "--model", "m", "--ids", "1", "--bare"}, {"--bare is for text"});
  refuse({"tokenize", "--model", "m", "--ids", "x"}, {"--ids", "allowed: integers from 0"});
}

TEST(Options, Bench) {
  const BenchOptions defaults = accept(line("bench", {})).bench;
  EXPECT_EQ(defaults.prompt_lengths, std::vector<int64_t>{512});
  EXPECT_EQ(defaults.decode_tokens, 64);
  EXPECT_TRUE(defaults.batches.empty());
  EXPECT_EQ(defaults.repetitions, 5);
  EXPECT_FALSE(defaults.json);
  const Options options = accept(line("bench", {"-p", "7,2048", "-n", "3", "-b", "1,2100,4", "-r", "2", "--json"}));
  EXPECT_EQ(options.bench.prompt_lengths, (std::vector<int64_t>{7, 2048}));
  EXPECT_EQ(options.bench.decode_tokens, 3);
  EXPECT_EQ(options.bench.batches, (std::vector<int64_t>{1, 2100, 4}));
  EXPECT_EQ(options.bench.repetitions, 2);
  EXPECT_TRUE(options.bench.json);
  EXPECT_EQ(options.engine.max_seqs, 2100) << "what is asked for gets room";
  EXPECT_EQ(options.engine.token_budget, 2164);
  EXPECT_EQ(defaults.depths, std::vector<int64_t>{0});
  EXPECT_EQ(options.engine.cache_need.num_sequences, 2100);
  EXPECT_EQ(options.engine.cache_need.first_tokens, 2049);
  EXPECT_EQ(options.engine.cache_need.further_tokens, 36) << "32, 3 and one";
  EXPECT_FALSE(options.engine.cache_need.memory_is_given);
  for (const char* name : {"-p", "-b"}) refuse(line("bench", {name, "3,0"}), {name, "'3,0'", "allowed: integers from 1"});
  refuse(line("bench", {"-n", "0"}), {"-n", "'0'", "1 to 1048576"});
  refuse(line("bench", {"-r", "1001"}), {"-r", "'1001'", "1 to 1000"});
}

TEST(Options, BenchBehindContexts) {
  const Options options =
      accept(line("bench", {"-d", "0,8192", "-p", "512", "-n", "64", "-b", "4", "--memory", "1GiB", "--peers"}));
  EXPECT_EQ(options.bench.depths, (std::vector<int64_t>{0, 8192}));
  EXPECT_TRUE(options.bench.peers);
  EXPECT_EQ(options.engine.cache_need.num_sequences, 4);
  EXPECT_EQ(options.engine.cache_need.first_tokens, 8192 + 512 + 1);
  EXPECT_EQ(options.engine.cache_need.further_tokens, 8192 + 32 + 64 + 1);
  EXPECT_TRUE(options.engine.cache_need.memory_is_given);
  EXPECT_EQ(options.engine.memory_bytes, int64_t{1} << 30);
  refuse(line("bench", {"-d", "-1"}), {"-d", "'-1'", "from 0 to 1048576"});
  for (const char* list : {"-p", "-b", "-d"})  // rows would have the same name, which a comparison cannot tell apart
    refuse(line("bench", {list, "16,8,016"}), {list, "'16,8,016'", "each number once, not 16 twice"});
  refuse(line("bench", {"-d", "0,8", "--speculate", "auto"}), {"-d: not with --speculate"});
  refuse(line("bench", {"-d", "0,8", "--trace", "t"}), {"-d: 2 of them with --trace", "allowed: one"});
  accept(line("bench", {"-d", "8", "--trace", "t"}));
  accept(line("bench", {"-d", "0", "--speculate", "auto"}));
}

TEST(Options, BenchComparesTwoFiles) {
  const Options options = accept({"bench", "compare", "a", "b", "--fail-below", "0.95", "--json"});
  EXPECT_EQ(options.command, Command::kBenchCompare);
  EXPECT_EQ(options.bench_compare.files, (std::vector<std::filesystem::path>{"a", "b"}));
  EXPECT_EQ(options.bench_compare.fail_below, 0.95);
  EXPECT_TRUE(options.bench_compare.json);
  EXPECT_FALSE(accept({"bench", "compare", "a", "b"}).bench_compare.fail_below);
  refuse({"bench", "compare", "a"}, {"BEFORE AFTER"});
  refuse({"bench", "compare"}, {"BEFORE AFTER"});
  refuse({"bench", "compare", "a", "b", "c"}, {"BEFORE AFTER: 3 given; allowed: at most 2"});
  refuse({"bench", "compare", "a", "b", "--fail-below", "1.5"}, {"--fail-below", "'1.5'", "0 to 1"});
  refuse({"bench", "compare", "a", "b", "--model", "m"}, {"BEFORE AFTER: 3 given"});
  refuse(line("bench", {"compare", "a", "b"}), {"not expected: 'compare', 'a', 'b'"});
}

struct BadValue {
  const char* command;
  const char* name;
  const char* value;
  const char* allowed;
};

TEST(Options, BadValuesNameOptionValueAndWhatIsAllowed) {
  for (const BadValue& bad : {BadValue{"serve", "--dtype", "f16", "f32, bf16"},
                              {"serve", "--dtype", "0", "f32, bf16"},
                              {"serve", "--dtype", "", "f32, bf16"},
                              {"serve", "--transport", "ib", "auto, mpi, gloo"},
                              {"serve", "--transport", "2", "auto, mpi, gloo"},
                              {"serve", "--kernels", "sse", "auto, avx512, avx2, ref"},
                              {"serve", "--combine", "sloppy", "exact, fast"},
                              {"serve", "--profile", "3", "off"},
                              {"bench", "--trace-clock-skew", "1:2", "RANK:NANOSECONDS:PPM"},
                              {"serve", "--matmul", "mkl", "auto, amx, avx512_bf16, avx512_vnni, avx512, avx2, onednn, ref"},
                              {"serve", "--quantize", "w3a8", "none, native"},
                              {"serve", "--quantize", "w4a8:48", "32, 64, 128 or 256"},
                              {"serve", "--quantize", "router=w8a8", "experts, shared, mixers, lm_head"},
                              {"serve", "--threads", "0", "1 to 1024"},
                              {"serve", "--threads", "1025", "1 to 1024"},
                              {"serve", "--threads", "two", "1 to 1024"},
                              {"serve", "--threads", "1.5", "1 to 1024"},
                              {"serve", "--threads", "", "1 to 1024"},
                              {"serve", "--max-seqs", "0", "1 to 65536"},
                              {"serve", "--max-waiting", "-1", "1 to 1048576"},
                              {"serve", "--token-budget", "1e3", "1 to 1048576"},
                              {"serve", "--token-budget", "79", "at least 80"},
                              {"serve", "--prefill-chunk", "0", "1 to 1048576"},
                              {"serve", "--prefill-chunk", "100", "1 to 64, or a multiple of 64"},
                              {"serve", "--max-context", "1", "2 to 1073741824"},
                              {"serve", "--peer-timeout", "0", "0.1 to 86400 seconds"},
                              {"serve", "--peer-timeout", "inf", "0.1 to 86400 seconds"},
                              {"generate", "--max-tokens", "0", "1 to 1073741824"},
                              {"generate", "--max-tokens", "99999999999999999999", "1 to 1073741824"},
                              {"generate", "--temperature", "-0.5", "0 to 1000000"},
                              {"generate", "--temperature", "nan", "0 to 1000000"},
                              {"generate", "--top-p", "0", "above 0, at most 1"},
                              {"generate", "--top-p", "1.01", "above 0, at most 1"},
                              {"generate", "--top-k", "-1", "0 to 1073741824"},
                              {"generate", "--seed", "-1", "0 to 18446744073709551615"},
                              {"generate", "--seed", "18446744073709551616", "0 to 18446744073709551615"},
                              {"generate", "--thinking", "maybe", "default, on, off"}}) {
    refuse(line(bad.command, {bad.name, bad.value}), {bad.name, std::string("'") + bad.value + "'", bad.allowed});
  }
}

TEST(Options, CommandLinesThatMakeNoSense) {
  const std::string commands = "allowed: serve, generate, dump, bench";
  refuse({}, {"a command is missing", commands});
  refuse({"train"}, {"'train'", commands});
  refuse({"--model", "m"}, {"'--model'", commands});
  refuse({"serve"}, {"--model", "required"});
  refuse(line("serve", {"--bogus"}), {"--bogus"});
  refuse(line("serve", {"--prompt", "x"}), {"--prompt"});
  refuse(line("serve", {"stray"}), {"stray"});
  refuse(line("serve", {"--model", "n"}), {"--model"});
  refuse(line("serve", {"--grpc"}), {"--grpc"});
  refuse(line("serve", {"line\nbreak"}), {"line break"});
}

TEST(Options, Devices) {
  EXPECT_EQ(accept({"devices"}).command, Command::kDevices);
  EXPECT_FALSE(accept({"devices"}).devices.json);
  EXPECT_TRUE(accept({"devices", "--json"}).devices.json);
  refuse({"devices", "--model", "m"}, {"--model"});
}

TEST(Options, HelpNamesEveryOption) {
  const ParseResult top = parse({"--help"});
  EXPECT_FALSE(top.options.has_value());
  EXPECT_EQ(top.exit_code, 0);
  for (const char* part : {"serve", "generate", "dump", "bench", "--version"})
    EXPECT_NE(top.message.find(part), std::string::npos) << part;
  const ParseResult generate = parse({"generate", "--help"});
  EXPECT_EQ(generate.exit_code, 0);
  for (const char* part :
       {"--model",         "--dtype",       "--threads",      "--transport",     "--net-interface", "--kernels",
        "--device",        "--matmul",      "--memory",       "--max-seqs",      "--max-waiting",   "--token-budget",
        "--prefill-chunk", "--max-context", "--peer-timeout", "--check-weights", "--prompt",        "--chat",
        "--token-ids",     "--max-tokens",  "--temperature",  "--top-p",         "--top-k",         "--seed",
        "--stop",          "--ignore-eos",  "--thinking",     "--json"}) {
    EXPECT_NE(generate.message.find(part), std::string::npos) << part;
  }
}

TEST(Options, HelpSaysWhatACaptureHolds) {
  for (const std::string command : {"bench", "generate"}) {
    const std::string help = parse({command, "--help"}).message;
    EXPECT_NE(help.find("a timeline of all ranks down to each operator (with --profile 2 each thread's share, too)"),
              std::string::npos)
        << help;
  }
  EXPECT_EQ(parse({"bench", "--help"}).message.find("of --profile's level"), std::string::npos);
}

TEST(Options, VersionSaysWhatFerryRunsOn) {
  const ParseResult result = parse({"--version"});
  EXPECT_FALSE(result.options.has_value());
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.message, version_text());
  for (const char* part : {"ferry 0.", "kernels: ", "ref\n", "oneDNN ", "\nvulkan: ", "Open MPI v", "gloo ", "(tcp)"}) {
    EXPECT_NE(result.message.find(part), std::string::npos) << part << " is not in " << result.message;
  }
  EXPECT_EQ(result.message.back(), '\n');
}

}  // namespace
}  // namespace ferry
