#include "runtime/options.h"

#include <gtest/gtest.h>

#include "runtime/version.h"
#include "tests/support/expect_error.h"
#include "tests/support/source_folder.h"

namespace ferry {
namespace {

ParseResult parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"ferry"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return parse_options(static_cast<int>(argv.size()), argv.data());
}

/// `arguments` after a valid `ferry COMMAND` line.
std::vector<std::string> line(const std::string& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> all{command, "--model", "m"};
  if (command == "generate") all.insert(all.end(), {"--prompt", "text"});
  if (command == "dump") all.insert(all.end(), {"--token-ids", "1,2", "--out", "o"});
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

Options accept(const std::vector<std::string>& arguments) {
  const ParseResult result = parse(arguments);
  EXPECT_TRUE(result.options.has_value()) << result.message;
  EXPECT_EQ(result.exit_code, 0);
  return result.options.value_or(Options{});
}

void refuse(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
  const ParseResult result = parse(arguments);
  EXPECT_FALSE(result.options.has_value()) << (arguments.empty() ? "" : arguments.back());
  EXPECT_EQ(result.exit_code, 2) << result.message;
  test::expect_one_line_with(result.message, parts);
}

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
  for (const auto& words :
       std::vector<std::vector<const char*>>{{}, {"report"}, {"diff", "a"}, {"merge", "a", "b"}, {"show", "a"}}) {
    const ParseResult result = trace(words);
    EXPECT_FALSE(result.options.has_value());
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.message.find('\n'), std::string::npos) << result.message;
  }
}

TEST(Options, TraceAndClockSkew) {
  const Options options = accept(line("bench", {"--trace", "t", "--trace-clock-skew", "2:-5000:40.5"}));
  EXPECT_EQ(options.engine.trace, "t");
  EXPECT_EQ(options.engine.clock_skew.rank, 2);
  EXPECT_EQ(options.engine.clock_skew.offset_ns, -5000);
  EXPECT_EQ(options.engine.clock_skew.drift_ppm, 40.5);
}

TEST(Options, LimitsOfThePortsAreOptionsWithRanges) {
  const ServerLimits limits = accept(line("serve", {"--http-body-bytes", "2MiB", "--http-headers", "50", "--grpc-streams", "7",
                                                    "--http-idle-seconds", "0.5", "--stop-bytes", "10"}))
                                  .serve.limits;
  EXPECT_EQ(limits.http_body_bytes, 2 << 20);
  EXPECT_EQ(limits.http_headers, 50);
  EXPECT_EQ(limits.grpc_streams, 7);
  EXPECT_EQ(limits.http_idle_s, 0.5);
  EXPECT_EQ(limits.stop_bytes, 10);
  refuse(line("serve", {"--http-body-bytes", "2GiB"}), {"--http-body-bytes", "'2GiB'", "1KiB to 1GiB"});
  refuse(line("serve", {"--http-headers", "7"}), {"--http-headers", "'7'", "8 to 10000"});
  refuse(line("serve", {"--http-idle-seconds", "0"}), {"--http-idle-seconds", "0.1 to 86400"});
  const std::string help = parse({"serve", "--help"}).message;
  for (const char* text : {"--http-header-bytes", "--grpc-connections", "default 16MiB", "--prompt-bytes", "--api-key-file"})
    EXPECT_NE(help.find(text), std::string::npos) << text;
}

TEST(Options, AccessOfServe) {
  const AccessOptions access = accept(line("serve", {"--api-key-file", "k", "--tls-cert", "c", "--tls-key", "p",
                                                     "--tls-client-ca", "a", "--allowed-host", "one", "--allowed-host", "two"}))
                                   .serve.access;
  EXPECT_EQ(access.api_key_file, "k");
  EXPECT_EQ(access.tls_client_ca, "a");
  EXPECT_EQ(access.allowed_hosts, (std::vector<std::string>{"one", "two"}));
  refuse(line("serve", {"--tls-cert", "c"}), {"--tls-cert", "--tls-key", "both"});
  refuse(line("serve", {"--tls-key", "c"}), {"--tls-key", "--tls-cert", "both"});
  refuse(line("serve", {"--tls-client-ca", "c"}), {"--tls-client-ca", "--tls-cert"});
}

TEST(Options, OneKeyMayComeFromTheEnvironment) {
  ASSERT_EQ(setenv("FERRY_API_KEY", "a-secret-key", 1), 0);
  EXPECT_EQ(accept(line("serve", {})).serve.access.api_key, "a-secret-key");
  ASSERT_EQ(setenv("FERRY_API_KEY", "", 1), 0);
  refuse(line("serve", {}), {"FERRY_API_KEY", "no such variable"});
  EXPECT_FALSE(accept(line("generate", {})).serve.access.api_key.has_value());
  ASSERT_EQ(unsetenv("FERRY_API_KEY"), 0);
  EXPECT_FALSE(accept(line("serve", {})).serve.access.api_key.has_value());
}

TEST(Options, DefaultsOfServe) {
  const Options options = accept(line("serve", {}));
  EXPECT_EQ(options.command, Command::kServe);
  EXPECT_EQ(options.engine.model, "m");
  EXPECT_FALSE(options.engine.dtype.has_value());
  EXPECT_EQ(options.engine.threads, 0);
  EXPECT_EQ(options.engine.transport, TransportKind::kAuto);
  EXPECT_EQ(options.engine.net_interface, "");
  EXPECT_EQ(options.engine.combine, CombineMode::kExact);
  EXPECT_EQ(options.engine.profile, "0");
  EXPECT_EQ(options.engine.clock_skew.rank, -1);
  EXPECT_EQ(options.engine.kernels, "auto");
  EXPECT_EQ(options.engine.matmul, "auto");
  EXPECT_EQ(options.engine.memory_bytes, int64_t{2} << 30);
  EXPECT_EQ(options.engine.max_seqs, 16);
  EXPECT_EQ(options.engine.max_waiting, 256);
  EXPECT_EQ(options.engine.token_budget, 2112);
  EXPECT_EQ(options.engine.prefill_chunk, 2048);
  EXPECT_FALSE(options.engine.max_context.has_value());
  EXPECT_EQ(options.engine.peer_timeout_s, 30);
  EXPECT_FALSE(options.engine.check_weights);
  EXPECT_EQ(options.serve.grpc_address, "127.0.0.1:50051");
  EXPECT_EQ(options.serve.http_address, "127.0.0.1:8000");
  EXPECT_FALSE(options.serve.trace_dir.has_value());
  EXPECT_EQ(options.serve.drain_timeout_s, 30);
}

TEST(Options, EveryEngineOption) {
  for (const char* command : {"serve", "generate", "dump", "bench"}) {
    const EngineOptions engine =
        accept(line(command,
                    {"--dtype",        "f32",  "--threads",      "3",    "--transport",     "gloo",   "--net-interface", "lo",
                     "--kernels",      "avx2", "--matmul",       "avx2", "--memory",        "512MiB", "--max-seqs",      "5",
                     "--max-waiting",  "7",    "--token-budget", "99",   "--prefill-chunk", "64",     "--max-context",   "1000",
                     "--peer-timeout", "2.5",  "--check-weights"}))
            .engine;
    EXPECT_EQ(engine.dtype, DType::kF32);
    EXPECT_EQ(engine.threads, 3);
    EXPECT_EQ(engine.transport, TransportKind::kGloo);
    EXPECT_EQ(engine.net_interface, "lo");
    EXPECT_EQ(engine.kernels, "avx2");
    EXPECT_EQ(engine.matmul, "avx2");
    EXPECT_EQ(engine.memory_bytes, int64_t{512} << 20);
    EXPECT_EQ(engine.max_seqs, 5);
    EXPECT_EQ(engine.max_waiting, 7);
    EXPECT_EQ(engine.token_budget, 99);
    EXPECT_EQ(engine.prefill_chunk, 64);
    EXPECT_EQ(engine.max_context, 1000);
    EXPECT_EQ(engine.peer_timeout_s, 2.5);
    EXPECT_TRUE(engine.check_weights);
  }
}

TEST(Options, NamedValues) {
  for (const char* kernels : {"auto", "avx512", "avx2", "ref"})
    EXPECT_EQ(accept(line("serve", {"--kernels", kernels})).engine.kernels, kernels);
  for (const char* matmul : {"auto", "amx", "avx512_bf16", "avx512_vnni", "avx512", "avx2", "onednn", "ref"})
    EXPECT_EQ(accept(line("serve", {"--matmul", matmul})).engine.matmul, matmul);
  EXPECT_EQ(accept(line("serve", {"--combine", "fast"})).engine.combine, CombineMode::kFast);
  EXPECT_EQ(accept(line("serve", {"--dtype", "bf16"})).engine.dtype, DType::kBF16);
  EXPECT_EQ(accept(line("serve", {"--transport", "mpi"})).engine.transport, TransportKind::kMpi);
  EXPECT_EQ(accept(line("serve", {"--transport", "auto"})).engine.transport, TransportKind::kAuto);
}

TEST(Options, DemoNamesTheCheckpointThatComesWithFerry) {
  EXPECT_EQ(accept({"serve", "--model", "demo"}).engine.model, test::source_folder() / "launch" / "demo");
  EXPECT_EQ(accept({"serve", "--model", "./demo"}).engine.model, "./demo");
}

TEST(Options, MemoryUnits) {
  const std::vector<std::pair<std::string, int64_t>> sizes{
      {"4096", 4096}, {"1KiB", 1024}, {"3 MB", 3 << 20}, {"2gib", int64_t{2} << 30}, {"1TiB", int64_t{1} << 40}};
  for (const auto& [text, bytes] : sizes)
    EXPECT_EQ(accept(line("serve", {"--memory", text})).engine.memory_bytes, bytes) << text;
  for (const std::string text :
       {"3", "12parsecs", "-5GiB", "2PiB", "99999999999999999999", "9999999EiB", "", "1.5.2GiB", "GiB"}) {
    refuse(line("serve", {"--memory", text}), {"--memory", "1KiB to 1PiB"});
  }
}

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

TEST(Options, GenerateDefaultsAreThoseOfSamplingParams) {
  const GenerateOptions generate = accept(line("generate", {})).generate;
  EXPECT_EQ(generate.prompt, "text");
  EXPECT_EQ(generate.sampling.max_tokens, 256);
  EXPECT_EQ(generate.sampling.temperature, 0.0F);
  EXPECT_EQ(generate.sampling.top_p, 1.0F);
  EXPECT_EQ(generate.sampling.top_k, 0);
  EXPECT_EQ(generate.sampling.seed, 0U);
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

TEST(Options, TooFewFoldersOrTooMany) {
  refuse({"trace", "diff", "a"}, {"BEFORE AFTER: 1 given; allowed: 2 or more"});
  refuse({"trace", "merge", "a", "--out", "c"}, {"DIRS: 1 given; allowed: 2 or more"});
  refuse({"trace", "diff", "a", "b", "c"}, {"BEFORE AFTER: 3 given; allowed: at most 2"});
  refuse({"trace", "report", "a", "b"}, {"DIR: given 2 times; allowed: once"});
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

TEST(Options, Inspect) {
  const Options options = accept({"inspect", "m", "--json"});
  EXPECT_EQ(options.command, Command::kInspect);
  EXPECT_EQ(options.engine.model, "m");
  EXPECT_TRUE(options.inspect.json);
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
  EXPECT_EQ(defaults.batches, std::vector<int64_t>{1});
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
  for (const char* name : {"-p", "-b"}) refuse(line("bench", {name, "3,0"}), {name, "'3,0'", "allowed: integers from 1"});
  refuse(line("bench", {"-n", "0"}), {"-n", "'0'", "1 to 1048576"});
  refuse(line("bench", {"-r", "1001"}), {"-r", "'1001'", "1 to 1000"});
}

TEST(Options, Serve) {
  const ServeOptions serve = accept(line("serve", {"--grpc", "[::1]:0", "--drain-timeout", "0.5"})).serve;
  EXPECT_EQ(serve.grpc_address, "[::1]:0");
  EXPECT_EQ(serve.drain_timeout_s, 0.5);
  refuse(line("serve", {"--drain-timeout", "-1"}), {"--drain-timeout", "'-1'", "0 to 86400 seconds"});
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
                              {"serve", "--quantize", "w3a8", "none, w8a8, w4a8"},
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

TEST(Options, LimitsThatContradictEachOther) {
  refuse(line("serve", {"--max-seqs", "2100"}),
         {"--token-budget", "'2112'", "at least 2164", "--max-seqs 2100", "--prefill-chunk 2048"});
  EXPECT_EQ(accept(line("serve", {"--token-budget", "17", "--prefill-chunk", "1"})).engine.token_budget, 17);
  EXPECT_EQ(accept(line("serve", {"--prefill-chunk", "37"})).engine.prefill_chunk, 37);
  EXPECT_EQ(accept(line("serve", {"--prefill-chunk", "192"})).engine.prefill_chunk, 192);
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

TEST(Options, HelpNamesEveryOption) {
  const ParseResult top = parse({"--help"});
  EXPECT_FALSE(top.options.has_value());
  EXPECT_EQ(top.exit_code, 0);
  for (const char* part : {"serve", "generate", "dump", "bench", "--version"})
    EXPECT_NE(top.message.find(part), std::string::npos) << part;
  const ParseResult generate = parse({"generate", "--help"});
  EXPECT_EQ(generate.exit_code, 0);
  for (const char* part :
       {"--model",       "--dtype",        "--threads",       "--transport",   "--net-interface", "--kernels",
        "--matmul",      "--memory",       "--max-seqs",      "--max-waiting", "--token-budget",  "--prefill-chunk",
        "--max-context", "--peer-timeout", "--check-weights", "--prompt",      "--chat",          "--token-ids",
        "--max-tokens",  "--temperature",  "--top-p",         "--top-k",       "--seed",          "--stop",
        "--ignore-eos",  "--thinking",     "--json"}) {
    EXPECT_NE(generate.message.find(part), std::string::npos) << part;
  }
}

TEST(Options, VersionSaysWhatFerryRunsOn) {
  const ParseResult result = parse({"--version"});
  EXPECT_FALSE(result.options.has_value());
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.message, version_text());
  for (const char* part : {"ferry 0.", "kernels: ", "ref\n", "oneDNN ", "Open MPI v", "gloo ", "(tcp)"}) {
    EXPECT_NE(result.message.find(part), std::string::npos) << part << " is not in " << result.message;
  }
  EXPECT_EQ(result.message.back(), '\n');
}

}  // namespace
}  // namespace ferry
